package zkpaths

// The two readers of the payloads that have two, for the test that compares them.
var (
	FastState = fastState
	SlowState = slowState
	FastTopic = fastTopic
	SlowTopic = slowTopic
)
