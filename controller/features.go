package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// finalized is the cluster's finalized features: name to level.
type finalized map[string]int16

// refuses tells why a broker cannot take part, or "" (spec/controller.md §7.16).
func (f finalized) refuses(b kafka.Broker) string {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		supported, ok := b.Features[name]
		if !ok || f[name] > supported.Max || f[name] < supported.Min {
			return fmt.Sprintf("the broker does not support feature %s at its finalized level %d", name, f[name])
		}
	}
	return ""
}

// setUpFeatures creates /feature where it is missing and leaves enabled
// features alone. An unreadable node is reported and left alone.
func (c *Controller) setUpFeatures(ctx context.Context) error {
	c.features = nil
	n, err := c.readOne(ctx, zkpaths.GetData, zkpaths.Feature, false)
	if err != nil {
		return err
	}
	want := zkpaths.Features{Version: 2, Status: zkpaths.FeaturesEnabled}
	if c.opts.Version.Less(kafka.V3_3IV0) {
		want.Version = 1
	}
	versioning := c.opts.Version.AtLeast(kafka.V2_7IV0)
	if !versioning {
		want.Status = zkpaths.FeaturesDisabled
	}
	switch n.Code {
	case zkpaths.NoNode:
		return c.writeFeatures(ctx, zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.Feature, Data: zkpaths.EncodeFeatures(want)})
	case zkpaths.OK:
	default: // finalized features are not known then, as with an unreadable node
		if err := c.denied(zkpaths.Feature, n); !errors.Is(err, errDenied) {
			return err
		}
		return nil
	}
	have, err := zkpaths.DecodeFeatures(n.Data)
	if err != nil {
		c.report(err)
		return nil
	}
	c.repaired(zkpaths.Feature)
	if versioning && have.Status == zkpaths.FeaturesEnabled {
		c.features = finalized{}
		for name, r := range have.Features {
			c.features[name] = r.Max
		}
		return nil
	}
	if have.Status == want.Status && len(have.Features) == 0 {
		return nil
	}
	return c.writeFeatures(ctx, zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.Feature, Data: zkpaths.EncodeFeatures(want), Version: n.Stat.Version})
}

func (c *Controller) writeFeatures(ctx context.Context, w zkpaths.Write) error {
	out, err := c.store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{w})
	if err != nil {
		return err
	}
	c.rec.writes([]zkpaths.Write{w}, out)
	if !out[0].OK() {
		c.log.WithError(out[0].Error(w.Path)).Warn("cannot write the finalized features")
	}
	return nil
}
