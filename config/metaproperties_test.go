package config

import (
	"strings"
	"testing"
)

// The file as Kafka 3.9.1 writes it, as old releases did, and what is refused.
func TestMetaProperties(t *testing.T) {
	const path = "/data/meta.properties"
	for _, tc := range []struct{ content, want string }{
		{"#\n#Mon Nov 30 12:00:00 UTC 2026\nbroker.id=3\ndirectory.id=q1f1Xq7sQm2CLV4D8MAz1g\nversion=0\ncluster.id=Rj8qQd1TQm6Z0cX2yWvBfA\n", ""},
		{"version=0\nbroker.id=3\n", ""}, // before cluster ids
		{"", ""},
		{"version=0\nbroker.id=1\n", "data of broker 1, but broker.id is 3"},
		{"version=0\nbroker.id=3\ncluster.id=x\n", "data of cluster x, but zookeeper.connect leads to cluster Rj8qQd1TQm6Z0cX2yWvBfA"},
		{"version=1\nnode.id=3\ncluster.id=x\n", "version=1"},
		{"version=0\nbroker.id=three\n", `broker.id="three"`},
		{"version=0\nbroker.id=-1\n", "no broker id"},
	} {
		m, err := ParseMetaProperties(path, []byte(tc.content))
		if err == nil {
			err = m.CheckBroker(path, 3)
		}
		if err == nil {
			err = m.CheckCluster(path, "Rj8qQd1TQm6Z0cX2yWvBfA")
		}
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q: %v", tc.content, err)
		}
	}
	m := MetaProperties{BrokerID: new(int32(3)), ClusterID: "x"}
	back, err := ParseMetaProperties(path, m.Encode())
	if err != nil || *back.BrokerID != 3 || back.ClusterID != "x" || !strings.Contains(string(m.Encode()), "\nversion=0\nbroker.id=3\ncluster.id=x\n") {
		t.Errorf("%s: %+v, %v", m.Encode(), back, err)
	}
}
