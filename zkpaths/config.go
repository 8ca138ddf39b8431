package zkpaths

import (
	"maps"
	"slices"
)

// EncodeConfig gives the payload of a configuration entity
// (spec/controller.md §1.12), keys sorted.
func EncodeConfig(config map[string]string) []byte {
	b := append(make([]byte, 0, 32+64*len(config)), `{"version":1,"config":{`...)
	for i, key := range slices.Sorted(maps.Keys(config)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, key)
		b = append(b, ':')
		b = appendText(b, config[key])
	}
	return append(b, '}', '}')
}

// DecodeConfig reads the configuration at path. Null or empty data, and an
// object without "config", mean no overrides. Values are strings.
func DecodeConfig(path string, data []byte) (map[string]string, error) {
	if len(data) == 0 {
		return map[string]string{}, nil
	}
	config, err := decodeConfig(data)
	if err != nil {
		return nil, &PayloadError{Path: path, Reason: err.Error(),
			Remedy: `defaults are used until it is of the form {"version":1,"config":{"key":"value"}}`}
	}
	return config, nil
}

func decodeConfig(data []byte) (map[string]string, error) {
	o, err := parseObject(data)
	if err != nil || !o.has("config") {
		return map[string]string{}, err
	}
	inner, err := o.object("config")
	if err != nil {
		return nil, err
	}
	config := make(map[string]string, len(inner))
	for _, key := range inner.names() {
		if config[key], err = inner.text(key); err != nil {
			return nil, field("config", err)
		}
	}
	return config, nil
}
