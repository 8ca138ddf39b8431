package zkstore_test

import (
	"context"
	"os"
	"testing"

	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
	"go.uber.org/goleak"
)

// Session is the controller's Store (controller/ports.go).
var _ interface {
	Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error)
	Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
	Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
} = (*zkstore.Session)(nil)

// shared is the ZooKeeper of all tests here that leave it running.
var shared real.SharedZooKeeper

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Stop()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreCurrent()); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
