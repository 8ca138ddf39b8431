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

// ConfigResource names what is configured.
type ConfigResource struct {
	Type kmsg.ConfigResourceType
	Name string
}

// ConfigChange is what a request wants of one resource.
type ConfigChange struct {
	ConfigResource
	// Refused is why the request is wrong whatever the resource is; nil: it is not.
	Refused error
	ops     []kmsg.IncrementalAlterConfigsRequestResourceConfig
	whole   bool // ops are all that is to be set
}

// ConfigKeys is what is known about the configurations of a kind of resource.
type ConfigKeys struct {
	// Find gives a key's default, and whether its value is a list.
	Find func(name string) (def string, list, known bool)
	// Check tells why keys cannot be set so; RowError's zero value: they can.
	Check func(set map[string]string) events.RowError
	// BadOperation answers an operation that there is not.
	BadOperation kafka.ErrorCode
}

// TopicKeys are those of topics.
func TopicKeys() ConfigKeys {
	return ConfigKeys{
		Find: func(name string) (string, bool, bool) {
			c, known := kafka.TopicConfigFor(name)
			return c.Default, c.Type == kafka.ListConfig, known
		},
		Check: func(set map[string]string) events.RowError {
			if why := kafka.CheckTopicConfigs(set); why != "" {
				return events.RowError{Error: kafka.InvalidConfig, Message: why}
			}
			return events.RowError{}
		},
		BadOperation: kafka.UnknownServerError,
	}
}

// Apply gives the set of a resource after the change, given the one before. A
// refusal is a *Refusal.
func (c ConfigChange) Apply(set map[string]string, keys ConfigKeys) (map[string]string, error) {
	if c.whole {
		return wholeSet(c.ops, keys)
	}
	return applyOps(set, c.ops, keys)
}

func (e *Endpoint) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	return AnswerIncrementalAlterConfigs(ctx, req, e.alterOne)
}

// AnswerIncrementalAlterConfigs carries out each change of a request by alter,
// whose errors wrap the code to answer. The error is ctx's.
func AnswerIncrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest, alter func(context.Context, ConfigChange, bool) error) (kmsg.Response, error) {
	changes := make([]ConfigChange, len(req.Resources))
	for i, r := range req.Resources {
		var k keyCheck
		for _, op := range r.Configs {
			k.add(op.Name, op.Op != kmsg.IncrementalAlterConfigOpDelete && op.Value == nil)
		}
		changes[i] = ConfigChange{ConfigResource: ConfigResource{r.ResourceType, r.ResourceName}, Refused: k.err, ops: r.Configs}
	}
	rows, err := alterAll(ctx, changes, req.ValidateOnly, alter)
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
	return AnswerAlterConfigs(ctx, req, e.alterOne)
}

// AnswerAlterConfigs is AnswerIncrementalAlterConfigs for the request that
// replaces whole sets.
func AnswerAlterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest, alter func(context.Context, ConfigChange, bool) error) (kmsg.Response, error) {
	changes := make([]ConfigChange, len(req.Resources))
	for i, r := range req.Resources {
		var k keyCheck
		c := ConfigChange{ConfigResource: ConfigResource{r.ResourceType, r.ResourceName}, whole: true}
		for _, set := range r.Configs {
			k.add(set.Name, set.Value == nil)
			c.ops = append(c.ops, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: set.Name, Value: set.Value})
		}
		c.Refused = k.err
		changes[i] = c
	}
	rows, err := alterAll(ctx, changes, req.ValidateOnly, alter)
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
		k.err = &Refusal{refuse(kafka.InvalidRequest, "configuration %q is given twice", name)}
	case null:
		k.err = &Refusal{refuse(kafka.InvalidRequest, "configuration %q has a null value", name)}
	}
	if k.seen == nil {
		k.seen = map[string]bool{}
	}
	k.seen[name] = true
}

// alterAll answers each change, in order; the error is ctx's.
func alterAll(ctx context.Context, changes []ConfigChange, validateOnly bool, alter func(context.Context, ConfigChange, bool) error) ([]events.RowError, error) {
	count := map[ConfigResource]int{}
	for _, c := range changes {
		count[c.ConfigResource]++
	}
	rows := make([]events.RowError, len(changes))
	for i, c := range changes {
		if count[c.ConfigResource] > 1 {
			rows[i] = refuse(kafka.InvalidRequest, "the resource %q is in the request %d times", c.Name, count[c.ConfigResource])
			continue
		}
		err := c.Refused
		if err == nil {
			err = alter(ctx, c, validateOnly)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		rows[i] = rowOf(err)
	}
	return rows, nil
}

func (e *Endpoint) alterOne(ctx context.Context, c ConfigChange, validateOnly bool) error {
	switch {
	case c.Type == kmsg.ConfigResourceTypeBroker && c.Name == "" && e.configs != nil:
		return e.change(ctx, c, e.configs.BrokerKeys(), validateOnly, e.configs.BrokerDefaults, e.configs.AlterBrokerDefaults)
	case c.Type == kmsg.ConfigResourceTypeBroker:
		if why := e.ownBroker(c.Name); why.Error != kafka.NoError {
			return &Refusal{why}
		}
		return nil
	case c.Type != kmsg.ConfigResourceTypeTopic || e.configs == nil:
		return Refuse(kafka.InvalidRequest, "the controller's port does not change the configuration of resources of type %d; ask a broker", c.Type)
	}
	if err := CheckTopicResource(c.Name); err != nil {
		return err
	}
	return e.change(ctx, c, TopicKeys(), validateOnly, func(ctx context.Context) (map[string]string, error) { return e.configs.Topic(ctx, c.Name) },
		func(ctx context.Context, apply alteration) error { return e.configs.AlterTopic(ctx, c.Name, apply) })
}

// alteration gives a set of keys after a change.
type alteration = func(set map[string]string) (map[string]string, error)

// change carries a change out, or only tells what would come of it.
func (e *Endpoint) change(ctx context.Context, c ConfigChange, keys ConfigKeys, validateOnly bool,
	read func(context.Context) (map[string]string, error), alter func(context.Context, alteration) error) error {
	if err := e.reads.enter(ctx); err != nil {
		return err
	}
	defer e.reads.leave()
	apply := func(set map[string]string) (map[string]string, error) { return c.Apply(set, keys) }
	if !validateOnly {
		return alter(ctx, apply)
	}
	set, err := read(ctx)
	if err == nil {
		_, err = apply(set)
	}
	return err
}

// CheckTopicResource refuses a name that is no topic's.
func CheckTopicResource(name string) error {
	if name == "" {
		return Refuse(kafka.InvalidRequest, "the topic name is empty")
	}
	if why := kafka.ValidTopicName(name); why != "" {
		return &Refusal{events.RowError{Error: kafka.UnknownTopicOrPartition, Message: why}}
	}
	return nil
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
func wholeSet(ops []kmsg.IncrementalAlterConfigsRequestResourceConfig, keys ConfigKeys) (map[string]string, error) {
	after := make(map[string]string, len(ops))
	for _, op := range ops {
		after[op.Name] = *op.Value
	}
	if why := keys.Check(after); why.Error != kafka.NoError {
		return nil, &Refusal{why}
	}
	return after, nil
}

// applyOps gives the set after single changes. Keys that were there already and
// are left alone are kept, also those that this release does not know.
func applyOps(set map[string]string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig, keys ConfigKeys) (map[string]string, error) {
	after := make(map[string]string, len(set))
	maps.Copy(after, set)
	seen := map[string]bool{}
	for _, op := range ops {
		seen[op.Name] = true
		if why := applyOp(after, op, keys); why.Error != kafka.NoError {
			return nil, &Refusal{why}
		}
	}
	// Only what is changed is checked, and the pair that must agree.
	touched := map[string]string{}
	for name, value := range after {
		if seen[name] || strings.HasSuffix(name, ".compaction.lag.ms") {
			touched[name] = value
		}
	}
	if why := keys.Check(touched); why.Error != kafka.NoError {
		return nil, &Refusal{why}
	}
	return after, nil
}

func applyOp(set map[string]string, op kmsg.IncrementalAlterConfigsRequestResourceConfig, keys ConfigKeys) events.RowError {
	switch op.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		set[op.Name] = *op.Value
		return events.RowError{}
	case kmsg.IncrementalAlterConfigOpDelete:
		delete(set, op.Name)
		return events.RowError{}
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
	default:
		return refuse(keys.BadOperation, "unknown operation %d on configuration %q", op.Op, op.Name)
	}
	def, list, known := keys.Find(op.Name)
	switch {
	case !known:
		return refuse(kafka.UnknownServerError, "there is no configuration %q here", op.Name)
	case !list:
		return refuse(kafka.InvalidConfig, "configuration %s is no list, so nothing can be appended or subtracted", op.Name)
	}
	present, ok := set[op.Name]
	if !ok {
		present = def
	}
	items, given := listItems(present), listItems(*op.Value)
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

func listItems(value string) []string {
	return kafka.TopicConfig{Type: kafka.ListConfig}.Items(value)
}
