package dispatch

// coalesceAbove is the queue length up to which nothing is merged.
const coalesceAbove = 10

func coalesce(q []item) []item { return q }
