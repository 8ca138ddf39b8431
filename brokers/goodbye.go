package brokers

import (
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// goodbye is a controlled shutdown in progress (spec/broker.md §1.8).
type goodbye struct {
	attempts int
	retryAt  time.Time // zero: none is due
}

func (Stop) apply(b *Broker, now time.Time) {
	switch {
	case b.phase == down:
		b.emit(Exit{})
	case b.phase == running && !b.opts.ControlledShutdown.Disabled:
		// Set first: from here on no fetcher is started for what we are told to follow.
		b.phase = leaving
		b.sayGoodbye(now)
	default: // never up, or asked twice
		b.leave(now)
	}
}

// sayGoodbye asks the controller to take leaderships away.
func (b *Broker) sayGoodbye(now time.Time) {
	b.goodbye.attempts++
	controller, known := b.controller()
	if !known && !b.does.controllerFromZK {
		b.log.WithFields(b.fields()).Warn("controlled shutdown: no controller in the metadata cache")
		b.goodbyeFailed(now)
		return
	}
	if b.faults.cut[controller.ID] {
		b.goodbyeFailed(now)
		return
	}
	b.emit(AskControlledShutdown{Controller: controller, FromZooKeeper: b.does.controllerFromZK, Broker: b.opts.ID, BrokerEpoch: b.epoch, run: b.run})
}

func (e controlledShutdownAnswered) apply(b *Broker, now time.Time) {
	if e.run != b.run || b.phase != leaving {
		return
	}
	if e.err == nil && e.code == kafka.NoError && len(e.remaining) == 0 {
		b.log.WithFields(b.fields()).Info("controlled shutdown succeeded")
		b.leave(now)
		return
	}
	log := b.log.WithFields(b.fields()).WithField("remaining", len(e.remaining))
	if e.err != nil {
		log = log.WithError(e.err)
	} else if e.code != kafka.NoError {
		log = log.WithError(e.code)
	}
	log.Warn("controlled shutdown failed")
	b.goodbyeFailed(now)
}

func (b *Broker) goodbyeFailed(now time.Time) {
	if b.goodbye.attempts >= b.opts.ControlledShutdown.MaxRetries {
		b.log.WithFields(b.fields()).Warn("stopping without a controlled shutdown: all attempts failed")
		b.leave(now)
		return
	}
	b.goodbye.retryAt = now.Add(b.opts.ControlledShutdown.RetryBackoff)
}

func (b *Broker) goodbyeDue(now time.Time) {
	if b.phase == leaving && reached(b.goodbye.retryAt, now) {
		b.goodbye.retryAt = time.Time{}
		b.sayGoodbye(now)
	}
}

// leave ends the process in good order. The registration goes last, with the
// session; changes not announced yet are lost, as in Kafka.
func (b *Broker) leave(now time.Time) {
	if b.opts.Logs != nil {
		b.closeLogs()
	}
	b.die(now)
	b.emit(CloseSession{})
	b.emit(Exit{})
}
