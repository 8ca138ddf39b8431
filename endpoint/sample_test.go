package endpoint

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var ordersID = [16]byte([]byte("id of orders...................."[:16]))

// sampleRequest gives a request that says something in every version.
func sampleRequest(key kmsg.Key, version int16) kmsg.Request {
	orders := "orders"
	req := kmsg.RequestForKey(int16(key))
	req.SetVersion(version)
	switch r := req.(type) {
	case *kmsg.MetadataRequest:
		t := kmsg.NewMetadataRequestTopic()
		if t.Topic = &orders; version >= 12 {
			t.Topic, t.TopicID = nil, ordersID
		}
		r.Topics = append(r.Topics, t)
	case *kmsg.ControlledShutdownRequest:
		r.BrokerID, r.BrokerEpoch = 2, 102
	case *kmsg.FindCoordinatorRequest:
		r.CoordinatorKey, r.CoordinatorKeys = "group", []string{"group"}
	case *kmsg.CreateTopicsRequest:
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = "new", 3, 2
		t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: &orders}}
		r.Topics, r.TimeoutMillis = append(r.Topics, t), 1000
	case *kmsg.DeleteTopicsRequest:
		r.TopicNames, r.TimeoutMillis = []string{"orders"}, 1000
		r.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: ordersID}}
	case *kmsg.InitProducerIDRequest:
		r.TransactionTimeoutMillis = 60000
	case *kmsg.DescribeConfigsRequest:
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "orders"}}
	case *kmsg.AlterConfigsRequest:
		r.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "9999"}}
	case *kmsg.IncrementalAlterConfigsRequest:
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "9999"}}
	case *kmsg.CreatePartitionsRequest:
		r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "orders", Count: 3}}
		r.TimeoutMillis = 1000
	case *kmsg.ElectLeadersRequest:
		r.Topics, r.TimeoutMillis = []kmsg.ElectLeadersRequestTopic{{Topic: "orders", Partitions: []int32{0}}}, 1000
	case *kmsg.AlterPartitionAssignmentsRequest:
		p := kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: 1, Replicas: []int32{3}}
		r.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "orders", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{p}}}
	case *kmsg.AlterPartitionRequest:
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.Partition, p.NewISR, p.PartitionEpoch = 1, []int32{2}, 7
		p.NewEpochISR = []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: 2, BrokerEpoch: -1}}
		r.BrokerID, r.BrokerEpoch = 2, 102
		r.Topics = []kmsg.AlterPartitionRequestTopic{{Topic: "orders", TopicID: ordersID, Partitions: []kmsg.AlterPartitionRequestTopicPartition{p}}}
	case *kmsg.UpdateFeaturesRequest:
		f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		f.Feature = "metadata.version"
		r.FeatureUpdates = append(r.FeatureUpdates, f)
	case *kmsg.DescribeClusterRequest:
		r.EndpointType = 1
	case *kmsg.AllocateProducerIDsRequest:
		r.BrokerID = 2
	}
	return req
}

func expect[R kmsg.Response](ok func(R) bool) func(kmsg.Response) bool {
	return func(r kmsg.Response) bool { return ok(r.(R)) }
}

// sampleAnswers tell whether a sample request was answered as it should be.
var sampleAnswers = map[kmsg.Key]func(kmsg.Response) bool{
	kmsg.Metadata: expect(func(r *kmsg.MetadataResponse) bool {
		return len(r.Brokers) == 3 && len(r.Topics) == 1 && r.Topics[0].ErrorCode == 0 && *r.Topics[0].Topic == "orders" && len(r.Topics[0].Partitions) == 2 &&
			(r.Version < 1 || r.ControllerID == 9999) && (r.Version < 2 || *r.ClusterID == "small-cluster") && (r.Version < 10 || r.Topics[0].TopicID == ordersID)
	}),
	kmsg.ControlledShutdown: expect(func(r *kmsg.ControlledShutdownResponse) bool {
		return r.ErrorCode == 0 && len(r.PartitionsRemaining) == 1 && r.PartitionsRemaining[0].Partition == 2
	}),
	kmsg.FindCoordinator: expect(func(r *kmsg.FindCoordinatorResponse) bool {
		if r.Version >= 4 {
			return len(r.Coordinators) == 1 && r.Coordinators[0].Key == "group" && r.Coordinators[0].ErrorCode == 15 && r.Coordinators[0].NodeID == -1
		}
		return r.ErrorCode == 15 && r.NodeID == -1
	}),
	kmsg.ListGroups: expect(func(r *kmsg.ListGroupsResponse) bool { return r.ErrorCode == 0 && len(r.Groups) == 0 }),
	kmsg.CreateTopics: expect(func(r *kmsg.CreateTopicsResponse) bool {
		return len(r.Topics) == 1 && r.Topics[0].Topic == "new" && r.Topics[0].ErrorCode == 0 &&
			(r.Version < 5 || r.Topics[0].NumPartitions == 3 && r.Topics[0].ReplicationFactor == 2 && r.Topics[0].Configs != nil) &&
			(r.Version < 7) == (r.Topics[0].TopicID == [16]byte{})
	}),
	kmsg.DeleteTopics: expect(func(r *kmsg.DeleteTopicsResponse) bool {
		return len(r.Topics) == 1 && *r.Topics[0].Topic == "orders" && r.Topics[0].ErrorCode == 0 && (r.Version < 6) == (r.Topics[0].TopicID == [16]byte{})
	}),
	kmsg.DescribeConfigs: expect(func(r *kmsg.DescribeConfigsResponse) bool {
		return len(r.Resources) == 1 && len(r.Resources[0].Configs) == 4 && r.Resources[0].Configs[2].Name == "retention.ms" &&
			(r.Version == 0) == r.Resources[0].Configs[3].IsDefault && (r.Version < 1 || r.Resources[0].Configs[3].Source == kmsg.ConfigSourceDefaultConfig)
	}),
	kmsg.AlterConfigs: expect(func(r *kmsg.AlterConfigsResponse) bool {
		return len(r.Resources) == 1 && r.Resources[0].ErrorCode == 0 && r.Resources[0].ResourceName == "9999"
	}),
	kmsg.IncrementalAlterConfigs: expect(func(r *kmsg.IncrementalAlterConfigsResponse) bool {
		return len(r.Resources) == 1 && r.Resources[0].ErrorCode == 0 && r.Resources[0].ResourceName == "9999"
	}),
	kmsg.DescribeLogDirs: expect(func(r *kmsg.DescribeLogDirsResponse) bool {
		return r.ErrorCode == 0 && len(r.Dirs) == 1 && r.Dirs[0].ErrorCode == 0 && r.Dirs[0].Dir != "" && len(r.Dirs[0].Topics) == 0
	}),
	kmsg.CreatePartitions: expect(func(r *kmsg.CreatePartitionsResponse) bool {
		return len(r.Topics) == 1 && r.Topics[0].Topic == "orders" && r.Topics[0].ErrorCode == 0
	}),
	kmsg.ElectLeaders: expect(func(r *kmsg.ElectLeadersResponse) bool {
		return r.ErrorCode == 0 && len(r.Topics) == 1 && r.Topics[0].Partitions[0].ErrorCode == 84
	}),
	kmsg.AlterPartitionAssignments: expect(func(r *kmsg.AlterPartitionAssignmentsResponse) bool {
		return r.ErrorCode == 0 && len(r.Topics) == 1 && r.Topics[0].Partitions[0].Partition == 1 && r.Topics[0].Partitions[0].ErrorCode == 0
	}),
	kmsg.ListPartitionReassignments: expect(func(r *kmsg.ListPartitionReassignmentsResponse) bool { return r.ErrorCode == 0 && len(r.Topics) == 0 }),
	kmsg.AlterPartition: expect(func(r *kmsg.AlterPartitionResponse) bool {
		return r.ErrorCode == 0 && len(r.Topics) == 1 && (r.Version < 2) == (r.Topics[0].Topic == "orders") && (r.Version >= 2) == (r.Topics[0].TopidID == ordersID) &&
			r.Topics[0].Partitions[0].PartitionEpoch == 8 && r.Topics[0].Partitions[0].ISR[0] == 2
	}),
	kmsg.UpdateFeatures: expect(func(r *kmsg.UpdateFeaturesResponse) bool {
		return r.ErrorCode == 0 && len(r.Results) == 1 && r.Results[0].ErrorCode == 42
	}),
	kmsg.DescribeCluster: expect(func(r *kmsg.DescribeClusterResponse) bool {
		return r.ErrorCode == 0 && r.ControllerID == 9999 && len(r.Brokers) == 3 && r.ClusterID == "small-cluster"
	}),
	kmsg.ListTransactions: expect(func(r *kmsg.ListTransactionsResponse) bool { return r.ErrorCode == 0 && len(r.TransactionStates) == 0 }),
	kmsg.InitProducerID:   expect(func(r *kmsg.InitProducerIDResponse) bool { return r.ErrorCode == 0 && r.ProducerEpoch == 0 }),
	kmsg.AllocateProducerIDs: expect(func(r *kmsg.AllocateProducerIDsResponse) bool {
		return r.ProducerIDStart == 5000 && r.ProducerIDLen == 1000
	}),
}

// FuzzAnswer: whatever body comes under whatever key, the answer can be encoded.
func FuzzAnswer(f *testing.F) {
	for _, a := range allAPIs() {
		for v := a.min; v <= a.max; v++ {
			f.Add(int16(a.key), v, sampleRequest(a.key, v).AppendTo(nil))
		}
	}
	e, l := small(f, nil)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a, ok := e.api(kmsg.Key(key))
		if !ok || a.handle == nil || version < a.min || version > a.max {
			return
		}
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		if req.ReadFrom(body) != nil || tooLarge(req) {
			return
		}
		resp, err := e.answer(t.Context(), req)
		if err != nil {
			t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), version, err)
		}
		resp.SetVersion(version)
		back := req.ResponseKind()
		if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Fatalf("%s v%d: the answer cannot be read: %v", kmsg.NameForKey(key), version, err)
		}
		l.do(func() { l.seen = nil })
	})
}

// tooLarge leaves out what the small loop would really carry out, or wait for.
func tooLarge(req kmsg.Request) bool {
	switch r := req.(type) {
	case *kmsg.CreateTopicsRequest:
		for _, t := range r.Topics {
			if t.NumPartitions > 100 || t.ReplicationFactor > 3 || len(t.ReplicaAssignment) > 0 {
				return true
			}
		}
	case *kmsg.CreatePartitionsRequest:
		for _, t := range r.Topics {
			if t.Count > 100 || len(t.Assignment) > 0 {
				return true
			}
		}
	}
	return false
}
