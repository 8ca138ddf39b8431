package assembly

import (
	"fmt"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/controller"
)

// recordFile has the story of every event, one JSON object a line.
type recordFile struct {
	file *os.File
	log  logrus.FieldLogger
	sick bool // writing failed: said once, then left alone
}

// openRecorder appends to a file; "" records nothing.
func openRecorder(path string, log logrus.FieldLogger) (*recordFile, error) {
	if path == "" {
		return &recordFile{}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, misconfigured(fmt.Errorf("--record: %w", err))
	}
	return &recordFile{file: f, log: log}, nil
}

// attach makes the controller tell each event's story to the file. The sink is
// called on the controller's loop, so nothing here is locked.
func (r *recordFile) attach(c *controller.Controller) {
	if r.file == nil {
		return
	}
	c.SetRecorder(func(rec controller.Record) {
		line, err := rec.MarshalLine()
		if err == nil {
			_, err = r.file.Write(line)
		}
		if err != nil && !r.sick {
			r.sick = true
			r.log.WithError(err).Error("events are no longer recorded")
		}
	})
}

func (r *recordFile) close() {
	if r.file == nil {
		return
	}
	if err := r.file.Close(); err != nil {
		r.log.WithError(fmt.Errorf("close %s: %w", r.file.Name(), err)).Error("the last records may be lost")
	}
}
