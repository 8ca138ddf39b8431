package sim

import (
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// CatchUp lets every leader put those followers into its ISRs that are up, not
// Lagging and follow it in its epoch, one request a partition. Which way it
// asks depends on Options.Version: from 2.7-IV2 on an AlterPartition request,
// before that a write of the state znode and an announcement. It reports
// whether anything was asked for.
func (w *World) CatchUp() bool {
	asked := false
	for _, id := range ids(w.Brokers) {
		b := w.Brokers[id]
		if b.Session == 0 {
			continue
		}
		for _, tp := range b.Leads() {
			h := b.Hosted[tp]
			isr := slices.Clone(h.ISR)
			for _, f := range h.Replicas {
				if !slices.Contains(isr, f) && w.follows(f, id, tp, h.LeaderEpoch) {
					isr = append(isr, f)
				}
			}
			if len(isr) > len(h.ISR) && !w.refused[askKey(tp, h.LeaderEpoch, isr)] {
				asked = w.ChangeISR(b, tp, isr) || asked
			}
		}
	}
	return asked
}

func askKey(tp kafka.TopicPartition, epoch int32, isr []kafka.BrokerID) string {
	return fmt.Sprint(tp, epoch, isr)
}

func (w *World) follows(id, leader kafka.BrokerID, tp kafka.TopicPartition, epoch int32) bool {
	b := w.Brokers[id]
	if b == nil || b.Session == 0 || w.Lagging[id] || b.Offline[tp] {
		return false
	}
	h := b.Hosted[tp]
	return h != nil && h.Leader == leader && h.LeaderEpoch == epoch
}

// ChangeISR lets a leader ask for an ISR. It reports false if it could not ask.
func (w *World) ChangeISR(b *Broker, tp kafka.TopicPartition, isr []kafka.BrokerID) bool {
	h := b.Hosted[tp]
	if h == nil {
		return false
	}
	if w.Options.Version.Less(kafka.V2_7IV2) {
		return w.writeISR(b, h, tp, isr)
	}
	c := w.Active()
	if c == nil {
		return false
	}
	asked := h.LeaderEpoch
	c.Put(events.AlterPartition{
		Broker: b.ID, BrokerEpoch: b.Epoch, Version: 1,
		Partitions: []events.AlterPartitionRow{{Topic: tp.Topic, Partition: tp.Partition, LeaderEpoch: h.LeaderEpoch, ISR: isr, ZKVersion: h.ZKVersion}},
		Reply: func(top kafka.ErrorCode, rows []events.AlterPartitionResult) {
			if top == kafka.NoError && len(rows) == 1 && rows[0].Error == kafka.NoError && h.LeaderEpoch == asked {
				h.ISR, h.ZKVersion = slices.Clone(rows[0].ISR), rows[0].ZKVersion
			} else if w.refused != nil {
				w.refused[askKey(tp, asked, isr)] = true
			}
		},
	})
	return true
}

// writeISR is the way of profiles A and B (spec/broker.md §5.1, §6.4).
func (w *World) writeISR(b *Broker, h *Hosted, tp kafka.TopicPartition, isr []kafka.BrokerID) bool {
	data := zkpaths.EncodePartitionState(kafka.Leadership{ControllerEpoch: h.ControllerEpoch,
		LeaderAndISR: kafka.LeaderAndISR{Leader: b.ID, LeaderEpoch: h.LeaderEpoch, ISR: isr}})
	res := w.ZK.Write(b.Session, zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.PartitionStatePath(tp), Data: data, Version: h.ZKVersion})
	if res.Code != zkserver.OK {
		return false
	}
	h.ISR, h.ZKVersion = isr, res.Stat.Version
	w.ZK.Write(b.Session, zkserver.Op{Kind: zkserver.OpCreate, Mode: zkserver.PersistentSequential, ACL: zkserver.OpenACL(),
		Path: zkpaths.ISRNotificationPrefix, Data: zkpaths.EncodeISRNotification([]kafka.TopicPartition{tp})})
	return true
}

// Stabilize settles and catches up in turns until nothing changes any more.
// What the controller refused is not asked for again meanwhile.
func (w *World) Stabilize() error {
	w.refused = map[string]bool{}
	defer func() { w.refused = nil }()
	for range 1000 {
		if err := w.Settle(); err != nil {
			return err
		}
		if !w.CatchUp() {
			return nil
		}
	}
	return errUnstable
}
