package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of a command that did not run to its end, as shells have them.
const (
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignalled   = 128 // plus the signal's number
)

// runChild runs a command to its end with a few more variables. It is the
// command that decides what a signal means: all are passed on, and its status
// becomes ours.
func runChild(cmd *cobra.Command, words, variables []string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if desk, ok := cmd.Context().Value(deskKey{}).(*signalDesk); ok {
		desk.takers <- signals
	}
	if err := cmd.Context().Err(); err != nil { // a signal was faster
		return err
	}
	child := exec.Command(words[0], words[1:]...)
	child.Env = append(os.Environ(), variables...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := child.Start(); err != nil {
		code := exitNotRunnable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
		return withCode(code, fmt.Errorf("run %s: %w; give a program of the PATH, or its path", words[0], err))
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			// A terminal has sent it to the whole group, the command included.
			if s != os.Interrupt || !isTerminal(os.Stdin) {
				_ = child.Process.Signal(s) // it may have ended just now
			}
		case err := <-ended:
			return childStatus(words[0], child.ProcessState, err)
		}
	}
}

// childStatus gives a command's own status without a word: it has said what it
// had to say.
func childStatus(name string, state *os.ProcessState, err error) error {
	if err == nil {
		return nil
	}
	if state == nil || !errors.As(err, new(*exec.ExitError)) {
		return fmt.Errorf("run %s: %w", name, err)
	}
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return withCode(exitSignalled+int(s.Signal()), errSilent)
	}
	return withCode(state.ExitCode(), errSilent)
}

// signalDesk is where the process's signals go: to who takes them, and until
// somebody does the first one to first, the others to more.
type signalDesk struct {
	takers chan chan<- os.Signal
	first  func(os.Signal)
	more   func()
}

// deskKey finds the desk in main's context.
type deskKey struct{}

func (d *signalDesk) run(signals <-chan os.Signal) {
	var taker chan<- os.Signal
	seen := 0
	for {
		select {
		case taker = <-d.takers:
		case s := <-signals:
			switch seen++; {
			case taker != nil:
				select {
				case taker <- s:
				default: // it has not looked for many signals
				}
			case seen == 1:
				d.first(s)
			default:
				d.more()
			}
		}
	}
}
