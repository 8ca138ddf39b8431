package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays testdata/scenarios: one file a section of
// spec/controller.md §10. Each "scenario" directive makes a world of its own
// (its arguments are NewScenario's options) and plays its lines; "then" goes on
// in the same world. Expected values are those of the spec's tables.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "../../testdata/scenarios", func(t *testing.T, path string) {
		var s *Scenario
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "scenario":
				var options []string
				for _, a := range d.CmdArgs {
					word := a.Key
					if len(a.Vals) > 0 {
						word += "=" + strings.Join(a.Vals, ",")
					}
					options = append(options, word)
				}
				var err error
				if s, err = NewScenario(options); err != nil {
					d.Fatalf(t, "%v", err)
				}
			case "then":
			default:
				d.Fatalf(t, "unknown directive %s", d.Cmd)
			}
			out, err := s.Play(d.Input)
			if err != nil {
				out += fmt.Sprintf("error: %v\n", err)
			}
			return out
		})
	})
}
