package realtests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// programSteps is what each program of testdata/clients says it has done.
var programSteps = []string{"create", "acks=0", "acks=1", "acks=all", "idempotent", "consume", "group", "committed", "configs", "partitions", "groups", "delete"}

// The same story through client libraries of four languages: see
// testdata/clients/README.md.
func TestClientPrograms(t *testing.T) {
	requireOurs(t)
	for _, client := range []struct{ name, needs string }{{"sarama", "go"}, {"confluent", "python"}, {"kafkajs", "node"}, {"java", real.Java}} {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			argv := programOf(t, client.name, client.needs)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `exec "$@" "$ZKC_BOOTSTRAP_SERVERS"`, client.name}, argv...)...)
			if *brokersOf == "ours" {
				cmd.Args = append([]string{binary, "dev", "--profile", "3.9", "--"}, cmd.Args...)
				cmd.Path = binary
			} else {
				cmd.Env = append(os.Environ(), "ZKC_BOOTSTRAP_SERVERS="+startTarget(t).bootstrap())
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var done []string
			for _, line := range strings.Split(string(out), "\n") {
				if step, ok := strings.CutPrefix(line, "ok "); ok {
					name, _, _ := strings.Cut(step, " ")
					done = append(done, name)
				}
			}
			if err != nil || !slices.Equal(done, programSteps) {
				lines := strings.Split(stderr.String(), "\n")
				t.Fatalf("%v; it did %v of %v\n%s", err, done, programSteps, strings.Join(lines[max(0, len(lines)-30):], "\n"))
			}
			t.Logf("real: client %s\n%s", client.name, out)
		})
	}
}

// programOf installs a client library and gives the command that runs our
// program for it.
func programOf(t *testing.T, client, needs string) []string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "clients.sh"), client)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		real.Missing(t, needs, strings.TrimSpace(stderr.String()), "scripts/clients.sh "+client+" says what it lacks")
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
