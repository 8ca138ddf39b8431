package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/internal/spec"
)

func casesCommand() *cobra.Command {
	group := &cobra.Command{Use: "cases", Short: "Replay field cases", Args: cobra.NoArgs, RunE: nothingNamed}
	group.AddCommand(&cobra.Command{
		Use: "run DIR...", Short: "Replay the cases in folders or files; exit code 1 if one fails", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			for _, p := range paths {
				if _, err := os.Stat(p); err != nil {
					return usageError("%w", err)
				}
			}
			passed, failed, skipped, err := spec.RunWith(caseTools, paths, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			if failed > 0 || passed+skipped == 0 {
				return withCode(1, errSilent)
			}
			return nil
		},
	})
	return group
}

// caseTools are the commands that cases may run on znodes, without what they
// ask and print.
var caseTools = map[string]spec.Tool{
	"execute-via-znode": func(ctx context.Context, zk controller.Store, call spec.ToolCall) spec.ToolAnswer {
		moves, err := parsePlan("plan", []byte(call.Plan))
		if err == nil {
			_, err = checkByZnode(ctx, zk, moves, false)
		}
		if err == nil {
			err = startByZnode(ctx, zk, moves)
		}
		answer := map[string]any{"accepted": err == nil}
		if large, ok := errors.AsType[*planTooLargeError](err); ok {
			answer["suggested_pieces"] = large.pieces
		}
		return spec.ToolAnswer{Result: answer, Err: err}
	},
	"verify": func(ctx context.Context, zk controller.Store, call spec.ToolCall) spec.ToolAnswer {
		moves, err := parsePlan("plan", []byte(call.Plan))
		if err != nil {
			return spec.ToolAnswer{Err: err}
		}
		v, err := verifyByZnode(ctx, zk, moves, false)
		found := map[string]string{}
		for _, r := range v.results {
			found[r.Item] = r.Result
		}
		return spec.ToolAnswer{Result: map[string]any{"verify": found}, Findings: v.removed, Err: err}
	},
}
