package config

import (
	"fmt"
	"slices"
	"strings"
)

// Validate checks settings against each other, as Kafka does when it starts.
// What only one command needs (a broker id, ZooKeeper) that command asks for.
func (c *Config) Validate() error {
	bad := func(key, reason, remedy string) error {
		s := c.find(key)
		return &ValueError{Key: key, Value: s.Value, Origin: s.Origin, Reason: reason, Remedy: remedy}
	}
	if c.ReplicaFetchWait > c.ReplicaLag {
		return bad("replica.fetch.wait.max.ms", "longer than replica.lag.time.max.ms, so that followers would leave the ISR while they wait",
			"give at most replica.lag.time.max.ms")
	}
	for _, set := range []struct {
		key string
		es  []Endpoint
	}{{"listeners", c.Listeners}, {"advertised.listeners", c.AdvertisedListeners}} {
		for _, e := range set.es {
			if _, ok := c.ListenerProtocols[strings.ToUpper(e.Name)]; !ok {
				return bad(set.key, fmt.Sprintf("the listener %s has no security protocol", e.Name),
					fmt.Sprintf("add %s:PLAINTEXT to listener.security.protocol.map", e.Name))
			}
		}
	}
	if len(c.Listeners) == 0 && len(c.AdvertisedListeners) > 0 {
		return bad("advertised.listeners", "nothing listens there", "give listeners too")
	}
	for i, e := range c.Listeners {
		for _, o := range c.Listeners[:i] {
			if e.Port != 0 && e.Port == o.Port && e.Host == o.Host {
				return bad("listeners", fmt.Sprintf("%s and %s have the same address", o.Name, e.Name), "give each its own port")
			}
		}
	}
	for _, e := range c.AdvertisedListeners {
		if !slices.ContainsFunc(c.Listeners, func(l Endpoint) bool { return l.Name == e.Name }) {
			return bad("advertised.listeners", fmt.Sprintf("there is no listener %s", e.Name), "name it in listeners, or take it out here")
		}
		if c.Given("advertised.listeners") && (e.Host == "0.0.0.0" || e.Host == "::") {
			return bad("advertised.listeners", fmt.Sprintf("nobody can connect to %s", e.Host), "give the address that others use")
		}
	}
	// A controller without a listener may still be told how brokers are addressed.
	if name := c.InterBrokerListener; name != "" && len(c.Listeners) > 0 &&
		!slices.ContainsFunc(c.Listeners, func(l Endpoint) bool { return l.Name == name }) {
		return bad("inter.broker.listener.name", "no such listener", "give the name of one of listeners")
	}
	if c.ControlPlaneListener != "" && c.ControlPlaneListener == c.InterBrokerListener {
		return bad("control.plane.listener.name", "the same as inter.broker.listener.name", "give the two planes different listeners, or leave it out")
	}
	return nil
}
