package commitlog

import (
	"errors"
	"fmt"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// ErrPartial is wrapped by the error of a batch whose end is missing.
var ErrPartial = errors.New("not a whole batch")

// ErrUnpacksTooLarge is wrapped by the refusal of records that unpack to more
// than the bound.
var ErrUnpacksTooLarge = errors.New("records unpack to too many bytes")

// Error refuses records, for a reason that is the sender's to mend.
type Error struct {
	Code   kafka.ErrorCode // what the wire answers
	Record int             // which record of the batch, from 0; -1: the batch as a whole
	Reason string

	partial bool
	tooMuch bool // it wraps ErrUnpacksTooLarge
}

// Error gives the code's name and the reason.
func (e *Error) Error() string {
	if e.Record >= 0 {
		return fmt.Sprintf("%s: record %d: %s", e.Code, e.Record, e.Reason)
	}
	return e.Code.String() + ": " + e.Reason
}

// Is makes errors.Is find ErrPartial and ErrUnpacksTooLarge.
func (e *Error) Is(target error) bool {
	return e.partial && target == ErrPartial || e.tooMuch && target == ErrUnpacksTooLarge
}

func refuse(code kafka.ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Record: -1, Reason: fmt.Sprintf(format, args...)}
}

func refuseUnpacked(what string, bound int) *Error {
	return &Error{Code: kafka.MessageTooLarge, Record: -1, Reason: fmt.Sprintf("the %s unpack to more than %d bytes", what, bound), tooMuch: true}
}

func refuseRecord(code kafka.ErrorCode, record int, format string, args ...any) *Error {
	return &Error{Code: code, Record: record, Reason: fmt.Sprintf(format, args...)}
}

// OffsetOutOfRange answers a read below the log's start or above its end, and
// an offset that the log cannot be moved to.
type OffsetOutOfRange struct{ Offset, Start, End int64 }

// Error names the offset and the range.
func (e *OffsetOutOfRange) Error() string {
	return fmt.Sprintf("OFFSET_OUT_OF_RANGE: offset %d is not in the log's %d to %d", e.Offset, e.Start, e.End)
}

// UnexpectedOffset refuses a follower's append that would go back.
type UnexpectedOffset struct{ Offset, End int64 }

// Error names both offsets.
func (e *UnexpectedOffset) Error() string {
	return fmt.Sprintf("append of offset %d to a log that ends at %d", e.Offset, e.End)
}

// StorageError says that a file could not be read or written. After a failed
// write the Log takes nothing more until it is opened again.
type StorageError struct {
	Op, Path string
	Err      error
}

// Error gives what was done to which file.
func (e *StorageError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap gives the cause.
func (e *StorageError) Unwrap() error { return e.Err }

// DamageError says that records which were once safe on disk cannot be read.
type DamageError struct {
	Path   string
	At     int64 // byte in the file
	Reason string
}

// Error names the place and the remedy.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s; remove the partition's folder, so that it is copied again from its leader", e.Path, e.At, e.Reason)
}

// Code gives what the wire answers for an error of this package.
func Code(err error) kafka.ErrorCode {
	var (
		e      *Error
		outOf  *OffsetOutOfRange
		disk   *StorageError
		damage *DamageError
	)
	switch {
	case err == nil:
		return kafka.NoError
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &outOf):
		return kafka.OffsetOutOfRange
	case errors.As(err, &disk), errors.As(err, &damage):
		return kafka.KafkaStorageError
	}
	return kafka.UnknownServerError
}

func isPartial(err error) bool { return errors.Is(err, ErrPartial) }
