package config

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/magiconair/properties"
)

// MetaPropertiesFile is the name of the file in each of log.dirs that says whose data they are.
const MetaPropertiesFile = "meta.properties"

// MetaProperties is what a broker on ZooKeeper keeps there. An id that the file
// lacks is nil or "", as old releases left them.
type MetaProperties struct {
	BrokerID  *int32
	ClusterID string
}

// ParseMetaProperties reads the file at path.
func ParseMetaProperties(path string, data []byte) (MetaProperties, error) {
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return MetaProperties{}, fmt.Errorf("%s cannot be read: %w; repair it, or give log.dirs that are not used otherwise", path, err)
	}
	return MetaPropertiesOf(path, p.Map())
}

// MetaPropertiesOf makes sense of the keys of the file at path. Keys that mean
// nothing here, such as directory.id, are left alone.
func MetaPropertiesOf(path string, keys map[string]string) (MetaProperties, error) {
	if v := keys["version"]; v != "" && v != "0" {
		return MetaProperties{}, fmt.Errorf("%s has version=%s; data of a cluster on ZooKeeper have version=0, 1 is KRaft's; give log.dirs that are not used otherwise", path, v)
	}
	m := MetaProperties{ClusterID: keys["cluster.id"]}
	if text, ok := keys["broker.id"]; ok {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || id < 0 {
			return MetaProperties{}, fmt.Errorf("%s has broker.id=%q, which is no broker id; repair it", path, text)
		}
		m.BrokerID = new(int32(id))
	}
	return m, nil
}

// CheckBroker refuses the data of another broker.
func (m MetaProperties) CheckBroker(path string, id int32) error {
	if m.BrokerID == nil || *m.BrokerID == id {
		return nil
	}
	return fmt.Errorf("%s says that these are the data of broker %d, but broker.id is %d; if the data were moved here, set broker.id=%d; if a new broker is meant, give it empty log.dirs",
		path, *m.BrokerID, id, *m.BrokerID)
}

// CheckCluster refuses the data of another cluster.
func (m MetaProperties) CheckCluster(path, cluster string) error {
	if m.ClusterID == "" || m.ClusterID == cluster {
		return nil
	}
	return fmt.Errorf("%s says that these are data of cluster %s, but zookeeper.connect leads to cluster %s; correct zookeeper.connect, or give empty log.dirs",
		path, m.ClusterID, cluster)
}

// Encode gives the file's content.
func (m MetaProperties) Encode() []byte {
	var b bytes.Buffer
	b.WriteString("#\nversion=0\n")
	if m.BrokerID != nil {
		fmt.Fprintf(&b, "broker.id=%d\n", *m.BrokerID)
	}
	if m.ClusterID != "" {
		fmt.Fprintf(&b, "cluster.id=%s\n", m.ClusterID)
	}
	return b.Bytes()
}
