package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	desk := &signalDesk{takers: make(chan chan<- os.Signal),
		first: func(s os.Signal) { cancel(interruption{s}) },
		more:  func() { os.Exit(130) }} // it does not wait for anything
	go desk.run(signals)
	err := run(context.WithValue(ctx, deskKey{}, desk), os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(os.Stderr, "zkcontroller:", err)
	}
	os.Exit(exitCode(err))
}

// run carries out one command line. Errors carry their exit code, see exitCode.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(os.Stderr)
	root.SetContext(ctx)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return nil
	case !started: // cobra refused the words before any command ran
		return withCode(2, fmt.Errorf("%w; see zkcontroller --help", err))
	case ctx.Err() != nil:
		if in, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
			return withCode(130, fmt.Errorf("%s: %w", in.Error(), err))
		}
	}
	return err
}

// interruption is the cause of a context that a signal ended.
type interruption struct{ os.Signal }

func (i interruption) Error() string { return "interrupted by " + i.String() }

// errSilent ends a command whose output has said everything already.
var errSilent = errors.New("said already")

// codeError is an error with the exit code it leads to.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

func withCode(code int, err error) error { return &codeError{code, err} }

func usageError(format string, args ...any) error { return withCode(2, fmt.Errorf(format, args...)) }
func refused(format string, args ...any) error    { return withCode(4, fmt.Errorf(format, args...)) }

// exitCode tells an error's exit code (design.md §4).
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*codeError](err); ok {
		return e.code
	}
	if e, ok := errors.AsType[*assembly.Error](err); ok {
		switch e.Kind {
		case assembly.Misconfigured:
			return 2
		case assembly.Unreachable:
			return 3
		case assembly.Refused:
			return 4
		}
	}
	var bad *config.ValueError
	var locked *zkfiles.LockedError
	var network net.Error
	var answer kafka.ErrorCode
	switch {
	case errors.As(err, &bad):
		return 2
	case errors.Is(err, zkpaths.ErrControllerMoved), errors.Is(err, zkpaths.ErrFenceLost), errors.As(err, &locked):
		return 4
	case errors.As(err, &answer) && answer == kafka.NotController:
		return 4
	case errors.As(err, &answer) && answer == kafka.RequestTimedOut:
		return 3
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, zkpaths.ErrSessionExpired), errors.Is(err, zkpaths.ErrUnknownOutcome),
		errors.Is(err, kgo.ErrClientClosed), errors.As(err, &network) && !local(err), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNREFUSED):
		return 3
	}
	return 1
}

// local tells that this machine's files or ports are at fault: an error number
// of the system looks like one of the network.
func local(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "listen"
}
