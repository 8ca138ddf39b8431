package assembly

import "fmt"

// Kind sorts errors by who can help.
type Kind int

const (
	// Misconfigured: the options cannot work.
	Misconfigured Kind = iota + 1
	// Unreachable: ZooKeeper does not answer.
	Unreachable
	// Refused: somebody else has the id, the address or the log directory.
	Refused
)

// Error is an error of a known kind. Its text is that of Err.
type Error struct {
	Kind Kind
	Err  error
}

// Error gives the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

func misconfigured(err error) error { return &Error{Misconfigured, err} }

func refused(format string, args ...any) error { return &Error{Refused, fmt.Errorf(format, args...)} }

func unreachable(servers string, err error) error {
	return &Error{Unreachable, fmt.Errorf("reach ZooKeeper %s: %w", servers, err)}
}
