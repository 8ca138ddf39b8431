package kafka

import (
	"fmt"
	"strconv"
	"strings"
)

// ProtocolVersion is a value of inter.broker.protocol.version: release and
// internal version, comparable with Less. 2.4 means 2.4-IV1, as in Kafka: a
// bare release is the last internal version of that release.
type ProtocolVersion struct{ Major, Minor, IV int }

// lastIV has every release from 0.9.0 to 3.9, as Major and Minor, and its last
// internal version, which the bare release stands for.
var lastIV = map[[2]int]int{
	{0, 9}: 0, {0, 1000}: 1, {0, 1001}: 2, {0, 1002}: 0, {0, 1100}: 2, {1, 0}: 0, {1, 1}: 0, {2, 0}: 1, {2, 1}: 2, {2, 2}: 1, {2, 3}: 1, {2, 4}: 1, {2, 5}: 0, {2, 6}: 0, {2, 7}: 2, {2, 8}: 1,
	{3, 0}: 1, {3, 1}: 0, {3, 2}: 0, {3, 3}: 3, {3, 4}: 0, {3, 5}: 2, {3, 6}: 2, {3, 7}: 4, {3, 8}: 0, {3, 9}: 0,
}

// The versions at which behaviour changes (spec/controller.md §6.4, §11).
var (
	V0_9_0     = ProtocolVersion{0, 9, 0}
	V0_10_0IV1 = ProtocolVersion{0, 1000, 1}
	V0_10_2IV0 = ProtocolVersion{0, 1002, 0}
	V0_11_0IV0 = ProtocolVersion{0, 1100, 0}
	V1_0IV0    = ProtocolVersion{1, 0, 0}
	V1_1IV0    = ProtocolVersion{1, 1, 0}
	V2_1IV0    = ProtocolVersion{2, 1, 0}
	V2_2IV0    = ProtocolVersion{2, 2, 0}
	V2_3IV0    = ProtocolVersion{2, 3, 0}
	V2_4IV0    = ProtocolVersion{2, 4, 0}
	V2_4IV1    = ProtocolVersion{2, 4, 1}
	V2_6IV0    = ProtocolVersion{2, 6, 0}
	V2_7IV0    = ProtocolVersion{2, 7, 0}
	V2_7IV2    = ProtocolVersion{2, 7, 2}
	V2_8IV0    = ProtocolVersion{2, 8, 0}
	V2_8IV1    = ProtocolVersion{2, 8, 1}
	V3_0IV0    = ProtocolVersion{3, 0, 0}
	V3_2IV0    = ProtocolVersion{3, 2, 0}
	V3_3IV0    = ProtocolVersion{3, 3, 0}
	V3_4IV0    = ProtocolVersion{3, 4, 0}
	V3_9IV0    = ProtocolVersion{3, 9, 0}
)

// Less tells whether v is older than o.
func (v ProtocolVersion) Less(o ProtocolVersion) bool {
	if v.Major != o.Major {
		return v.Major < o.Major
	}
	if v.Minor != o.Minor {
		return v.Minor < o.Minor
	}
	return v.IV < o.IV
}

// AtLeast tells whether v is o or newer.
func (v ProtocolVersion) AtLeast(o ProtocolVersion) bool { return !v.Less(o) }

// String gives Kafka's long form, for example 2.7-IV2 or 0.10.2-IV0.
func (v ProtocolVersion) String() string {
	if v.Major == 0 && v.Minor >= 1000 {
		return fmt.Sprintf("0.%d.%d-IV%d", v.Minor/100, v.Minor%100, v.IV)
	}
	return fmt.Sprintf("%d.%d-IV%d", v.Major, v.Minor, v.IV)
}

// ParseProtocolVersion reads 2.4, 2.4.1, 2.7-IV2, 0.10.2, 0.10.2.2, 0.11.0-IV1
// and the like; the patch number is ignored as Kafka does.
func ParseProtocolVersion(s string) (ProtocolVersion, error) {
	bad := fmt.Errorf("inter.broker.protocol.version %q is not a Kafka release from 0.9 to 3.9, such as 2.4, 2.7-IV2 or 0.10.2.2", s)
	release, iv, hasIV := strings.Cut(strings.TrimSpace(s), "-")
	var n []int
	for _, part := range strings.Split(release, ".") {
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 {
			return ProtocolVersion{}, bad
		}
		n = append(n, i)
	}
	if len(n) < 2 || len(n) > 4 {
		return ProtocolVersion{}, bad
	}
	v := ProtocolVersion{Major: n[0], Minor: n[1]}
	if v.Major == 0 { // the third number is part of the release
		third := 0
		if len(n) > 2 {
			third = n[2]
		} else if v.Minor == 10 {
			third = 2
		}
		switch {
		case v.Minor >= 10 && third < 100:
			v.Minor = v.Minor*100 + third
		case third != 0:
			return ProtocolVersion{}, bad
		}
	}
	last, known := lastIV[[2]int{v.Major, v.Minor}]
	if !known {
		return ProtocolVersion{}, bad
	}
	v.IV = last
	if hasIV {
		i, err := strconv.Atoi(strings.TrimPrefix(iv, "IV"))
		if err != nil || !strings.HasPrefix(iv, "IV") || i < 0 || i > last {
			return ProtocolVersion{}, bad
		}
		v.IV = i
	}
	return v, nil
}
