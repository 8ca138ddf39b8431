package zkstore_test

import (
	"os"
	"testing"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/zkstore"
	"go.uber.org/goleak"
)

var _ controller.Store = (*zkstore.Session)(nil)

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
