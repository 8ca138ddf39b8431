package endpoint

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Changing configurations (spec/admin-api.md §7.2). Any node may be asked to
// change a topic's: a tool that bootstraps from our port asks us. Broker
// resources are taken for our own id, and then nothing happens: they are
// throttles, which tools set on every node of the broker list, and we replicate
// no logs (spec/control-plane.md §5.2).

// resourceKey is one resource of a request.
type resourceKey struct {
	kind kmsg.ConfigResourceType
	name string
}

// change is what a request wants of one resource: the whole set after it, given
// the set before. A refusal is an error that is a rowErr; keys is the one for
// which it does not matter what the resource is.
type change struct {
	resourceKey
	keys  error
	apply func(set map[string]string) (map[string]string, error)
}

func (e *Endpoint) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	changes := make([]change, len(req.Resources))
	for i, r := range req.Resources {
		var k keyCheck
		for _, op := range r.Configs {
			k.add(op.Name, op.Op != kmsg.IncrementalAlterConfigOpDelete && op.Value == nil)
		}
		changes[i] = change{resourceKey{r.ResourceType, r.ResourceName}, k.err,
			func(set map[string]string) (map[string]string, error) { return applyOps(set, r.Configs) }}
	}
	rows, err := e.alter(ctx, changes, req.ValidateOnly)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for i, r := range req.Resources {
		row := kmsg.NewIncrementalAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = r.ResourceType, r.ResourceName
		row.ErrorCode, row.ErrorMessage = int16(rows[i].Error), message(rows[i])
		resp.Resources = append(resp.Resources, row)
	}
	return resp, nil
}

func (e *Endpoint) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) (kmsg.Response, error) {
	changes := make([]change, len(req.Resources))
	for i, r := range req.Resources {
		var k keyCheck
		for _, c := range r.Configs {
			k.add(c.Name, c.Value == nil)
		}
		changes[i] = change{resourceKey{r.ResourceType, r.ResourceName}, k.err,
			func(map[string]string) (map[string]string, error) { return wholeSet(r.Configs) }}
	}
	rows, err := e.alter(ctx, changes, req.ValidateOnly)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	for i, r := range req.Resources {
		row := kmsg.NewAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = r.ResourceType, r.ResourceName
		row.ErrorCode, row.ErrorMessage = int16(rows[i].Error), message(rows[i])
		resp.Resources = append(resp.Resources, row)
	}
	return resp, nil
}

// keyCheck refuses a key that comes twice, and a null value where there must be one.
type keyCheck struct {
	seen map[string]bool
	err  error // the first refusal
}

func (k *keyCheck) add(name string, null bool) {
	switch {
	case k.err != nil:
	case k.seen[name]:
		k.err = rowErr{refuse(kafka.InvalidRequest, "configuration %q is given twice", name)}
	case null:
		k.err = rowErr{refuse(kafka.InvalidRequest, "configuration %q has a null value", name)}
	}
	if k.seen == nil {
		k.seen = map[string]bool{}
	}
	k.seen[name] = true
}

// alter answers each change, in order; the error is ctx's.
func (e *Endpoint) alter(ctx context.Context, changes []change, validateOnly bool) ([]events.RowError, error) {
	count := map[resourceKey]int{}
	for _, c := range changes {
		count[c.resourceKey]++
	}
	rows := make([]events.RowError, len(changes))
	for i, c := range changes {
		if count[c.resourceKey] > 1 {
			rows[i] = refuse(kafka.InvalidRequest, "the resource %q is in the request %d times", c.name, count[c.resourceKey])
			continue
		}
		err := e.alterOne(ctx, c, validateOnly)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		rows[i] = rowOf(err)
	}
	return rows, nil
}

func (e *Endpoint) alterOne(ctx context.Context, c change, validateOnly bool) error {
	switch {
	case c.keys != nil:
		return c.keys
	case c.kind == kmsg.ConfigResourceTypeBroker:
		if why := e.ownBroker(c.name); why.Error != kafka.NoError {
			return rowErr{why}
		}
		return nil
	case c.kind != kmsg.ConfigResourceTypeTopic || e.configs == nil:
		return rowErr{refuse(kafka.InvalidRequest, "the controller's port does not change the configuration of resources of type %d; ask a broker", c.kind)}
	case c.name == "":
		return rowErr{refuse(kafka.InvalidRequest, "the topic name is empty")}
	}
	if why := kafka.ValidTopicName(c.name); why != "" { // and so no topic's
		return rowErr{events.RowError{Error: kafka.UnknownTopicOrPartition, Message: why}}
	}
	if err := e.reads.enter(ctx); err != nil {
		return err
	}
	defer e.reads.leave()
	if !validateOnly {
		return e.configs.AlterTopic(ctx, c.name, c.apply)
	}
	set, err := e.configs.Topic(ctx, c.name)
	if err == nil {
		_, err = c.apply(set)
	}
	return err
}

// rowOf gives an error's place in an answer.
func rowOf(err error) events.RowError {
	if err == nil {
		return events.RowError{}
	}
	code := kafka.UnknownServerError
	errors.As(err, &code)
	return events.RowError{Error: code, Message: err.Error()}
}

// wholeSet is the set that replaces what was.
func wholeSet(configs []kmsg.AlterConfigsRequestResourceConfig) (map[string]string, error) {
	after := make(map[string]string, len(configs))
	for _, c := range configs {
		after[c.Name] = *c.Value
	}
	if why := kafka.CheckTopicConfigs(after); why != "" {
		return nil, rowErr{events.RowError{Error: kafka.InvalidConfig, Message: why}}
	}
	return after, nil
}

// applyOps gives the set after single changes. Keys that were there already and
// are left alone are kept, also those that this release does not know.
func applyOps(set map[string]string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) (map[string]string, error) {
	after := make(map[string]string, len(set))
	maps.Copy(after, set)
	seen := map[string]bool{}
	for _, op := range ops {
		seen[op.Name] = true
		if why := applyOp(after, op); why.Error != kafka.NoError {
			return nil, rowErr{why}
		}
	}
	// Only what is changed is checked, and the pair that must agree.
	touched := map[string]string{}
	for name, value := range after {
		if seen[name] || strings.HasSuffix(name, ".compaction.lag.ms") {
			touched[name] = value
		}
	}
	if why := kafka.CheckTopicConfigs(touched); why != "" {
		return nil, rowErr{events.RowError{Error: kafka.InvalidConfig, Message: why}}
	}
	return after, nil
}

func applyOp(set map[string]string, op kmsg.IncrementalAlterConfigsRequestResourceConfig) events.RowError {
	switch op.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		set[op.Name] = *op.Value
		return events.RowError{}
	case kmsg.IncrementalAlterConfigOpDelete:
		delete(set, op.Name)
		return events.RowError{}
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
	default:
		return refuse(kafka.UnknownServerError, "unknown operation %d on configuration %q", op.Op, op.Name)
	}
	config, known := kafka.TopicConfigFor(op.Name)
	switch {
	case !known:
		return refuse(kafka.UnknownServerError, "there is no topic configuration %q", op.Name)
	case config.Type != kafka.ListConfig:
		return refuse(kafka.InvalidConfig, "configuration %s is no list, so nothing can be appended or subtracted", op.Name)
	}
	present, ok := set[op.Name]
	if !ok {
		present = config.Default
	}
	items, given := config.Items(present), config.Items(*op.Value)
	if op.Op == kmsg.IncrementalAlterConfigOpSubtract {
		items = slices.DeleteFunc(items, func(s string) bool { return slices.Contains(given, s) })
	} else {
		for _, s := range given {
			if !slices.Contains(items, s) {
				items = append(items, s)
			}
		}
	}
	set[op.Name] = strings.Join(items, ",")
	return events.RowError{}
}
