package main

import (
	"os"

	"github.com/spf13/cobra"

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
			passed, failed, skipped, err := spec.Run(paths, cmd.OutOrStdout())
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
