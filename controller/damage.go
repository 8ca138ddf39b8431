package controller

import (
	"errors"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// damage remembers which unreadable znodes were reported, and why, so that
// each is reported once and its repair is noticed (design decision D10).
type damage map[string]string

// report logs an unreadable znode once. Any other error is left to the caller,
// who is told so by false.
func (c *Controller) report(err error) bool {
	var bad *zkpaths.PayloadError
	if !errors.As(err, &bad) {
		return false
	}
	if c.damage[bad.Path] != bad.Reason {
		c.damage[bad.Path] = bad.Reason
		c.log.WithField("path", bad.Path).WithField("reason", bad.Reason).WithField("remedy", bad.Remedy).
			Error("unreadable znode; what it describes is left alone: " + bad.Error())
	}
	return true
}

// reportOnce is report for what is wrong with a path other than its payload.
func (c *Controller) reportOnce(path, reason, remedy string) {
	c.report(&zkpaths.PayloadError{Path: path, Reason: reason, Remedy: remedy})
}

// repaired forgets a report, so that the next damage of that path is told again.
func (c *Controller) repaired(path string) {
	if len(c.damage) == 0 {
		return
	}
	if _, ok := c.damage[path]; ok {
		delete(c.damage, path)
		c.log.WithField("path", path).Info("znode is readable again")
	}
}
