package zkfiles

import "fmt"

// CorruptError says that a file does not hold what it should.
type CorruptError struct {
	Path   string
	Offset int64 // of the entry or field; in the uncompressed bytes of a snapshot
	Reason string
	Remedy string
	Err    error // the cause, may be nil
}

// Error names the place, the reason and the remedy.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("%s is damaged at offset %d: %s", e.Path, e.Offset, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap gives the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// MissingError says that transactions between two files are not there.
type MissingError struct {
	After, Before int64  // zxids around the hole
	Path          string // of the file behind it; "" if the files end before Before
	Remedy        string
}

// Error names the hole and the remedy.
func (e *MissingError) Error() string {
	where := "the logs end there"
	if e.Path != "" {
		where = "the next file is " + e.Path
	}
	return fmt.Sprintf("ZooKeeper's transactions between zxid 0x%x and 0x%x are missing: %s; %s", e.After, e.Before, where, e.Remedy)
}
