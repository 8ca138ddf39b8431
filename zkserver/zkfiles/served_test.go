package zkfiles_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkserver"
)

// TestServeGolden starts our server on what Apache wrote: it has the tree that
// Apache served.
func TestServeGolden(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "apache-*", "*"))
	if err != nil || len(dirs) < 8 {
		t.Fatalf("%d golden folders (%v)", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(filepath.ToSlash(dir), func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(dir, "tree.txt"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := zkserver.New(zkserver.Options{DataDir: copyFolder(t, dir), ExtendedTypes: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var got strings.Builder
			s.Look(func(tree *zkserver.Tree) {
				super := zkserver.Who{Identities: []zkserver.Identity{{Scheme: "super"}}}
				cursor := tree.Cursor()
				for nodes := cursor.Next(10); nodes != nil; nodes = cursor.Next(10) {
					for _, n := range nodes {
						data, stat, code := tree.GetData(super, n.Path)
						if code != zkserver.OK {
							t.Errorf("%s: %v", n.Path, code)
						}
						got.WriteString(line(n.Path, data, n.ACL, stat))
					}
				}
			})
			equal(t, "what our server made of Apache's files", string(want), got.String())
		})
	}
}
