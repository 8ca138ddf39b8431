package zkstore

import (
	"context"
	"errors"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// errRolledBack is the Err of a write whose transaction failed at another one.
var errRolledBack = errors.New("not applied: the transaction was rolled back")

// Transact applies all writes, or none, unfenced. If one is refused, its
// Outcome has the code and all others are Failed, the error is nil. A lost
// answer is zkpaths.ErrUnknownOutcome: the caller looks it up.
func (s *Session) Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	ops, size := make([]*op, len(writes)), s.fenceSize()
	for i, w := range writes {
		if err := checkPath(w.Path); err != nil {
			return rolledBack(len(writes), i, zkpaths.Outcome{Code: zkpaths.Failed, Err: err}), nil
		}
		ops[i] = s.newOp(i, w)
		size += ops[i].size
	}
	if size > maxRequest {
		return rolledBack(len(writes), largest(ops), zkpaths.Outcome{Code: zkpaths.TooLarge}), nil
	}
	for {
		answers, err := s.multi(ctx, s.fenced(zkpaths.Unfenced, ops), nil)
		fate, code := judge(err)
		switch {
		case err == nil:
			outs := make([]zkpaths.Outcome, len(ops))
			for i, o := range ops {
				outs[i] = s.success(o.w, answers, i, multiZxid(answers))
			}
			return outs, nil
		case stop(ctx, err):
			return nil, err
		case fate == expired:
			return nil, zkpaths.ErrSessionExpired
		case fate == unsent:
			continue
		case fate == unknown:
			s.stats.lost.Add(1)
			return nil, zkpaths.ErrUnknownOutcome
		}
		k, opErr := failing(answers)
		if k < 0 || k >= len(ops) {
			k, opErr = 0, err
		} else {
			_, code = judge(opErr)
		}
		return rolledBack(len(ops), k, refused(code, opErr)), nil
	}
}

func rolledBack(n, k int, why zkpaths.Outcome) []zkpaths.Outcome {
	outs := make([]zkpaths.Outcome, n)
	for i := range outs {
		outs[i] = zkpaths.Outcome{Code: zkpaths.Failed, Err: errRolledBack}
	}
	if k < n {
		outs[k] = why
	}
	return outs
}

func largest(ops []*op) int {
	k := 0
	for i, o := range ops {
		if o.size > ops[k].size {
			k = i
		}
	}
	return k
}
