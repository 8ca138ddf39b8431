package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// formatFlag adds -o table|json|yaml.
func formatFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("output", "o", "table", "table, json or yaml")
}

// printData writes data as JSON or YAML, or the rows as a table.
func printData(w io.Writer, format string, data any, head []string, rows [][]string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(data)
	case "yaml":
		// By way of JSON, so that both have the same names.
		raw, err := json.Marshal(data)
		if err != nil {
			return err
		}
		var tree any
		if err := yaml.Unmarshal(raw, &tree); err != nil {
			return err
		}
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		if err := e.Encode(tree); err != nil {
			return err
		}
		return e.Close()
	case "table":
		return printTable(w, head, rows)
	}
	return usageError("-o %s: give table, json or yaml", format)
}

func printTable(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(head) > 0 {
		fmt.Fprintln(t, strings.Join(head, "\t"))
	}
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// mutation has the flags of commands that change something by hand.
type mutation struct {
	dryRun, yes bool
	format      *string
}

func mutationFlags(cmd *cobra.Command) *mutation {
	m := &mutation{format: formatFlag(cmd)}
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "print the plan and change nothing")
	cmd.Flags().BoolVar(&m.yes, "yes", false, "do not ask on a terminal")
	return m
}

// approve shows the plan and tells whether to go on. With --dry-run the plan is
// the output; on a terminal the answer must be yes.
func (m *mutation) approve(cmd *cobra.Command, plan []string) (bool, error) {
	if m.dryRun {
		for _, line := range plan {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if m.yes || !ok || !isTerminal(in) {
		return true, nil
	}
	fmt.Fprintln(cmd.ErrOrStderr(), strings.Join(plan, "\n"))
	fmt.Fprint(cmd.ErrOrStderr(), "Go on? [y/N] ")
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, refused("not confirmed; nothing was changed")
}

// result is what became of one item of a mutation.
type result struct {
	Item   string `json:"item"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
}

// finish prints results and gives the exit code: 1 if all failed, 5 if some did.
func (m *mutation) finish(cmd *cobra.Command, results []result) error {
	bad := 0
	rows := make([][]string, len(results))
	for i, r := range results {
		rows[i] = []string{r.Item, r.Result}
		if r.Error != "" {
			bad++
			rows[i] = append(rows[i], r.Error)
		}
	}
	if err := printData(cmd.OutOrStdout(), *m.format, results, nil, rows); err != nil {
		return err
	}
	switch {
	case bad == 0:
		return nil
	case bad == len(results):
		return withCode(1, errSilent)
	}
	return withCode(5, errSilent)
}
