package dispatch_test

import (
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/dispatch"
)

var _ controller.Channels = (*dispatch.Dispatcher)(nil)
