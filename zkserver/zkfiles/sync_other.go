//go:build !linux

package zkfiles

import "os"

// seekData: holes are read as the zeros they are.
const seekData = -1

// syncData makes the file's bytes durable.
func syncData(f *os.File) error { return f.Sync() }

func isNoData(error) bool { return false }
