package server

import (
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errGRPCBudget = status.Error(codes.ResourceExhausted,
	"the memory for messages in progress is used up, try again later")

// grpcBudget bounds the bytes that messages in progress hold on the Go heap.
type grpcBudget struct {
	limit int64
	used  atomic.Int64
}

// grpcCharge is what one message has taken from the budget.
type grpcCharge struct {
	budget *grpcBudget // nil is endless
	taken  int64
}

// take charges n bytes, before they are allocated.
func (c *grpcCharge) take(n int) error {
	if c.budget == nil || n <= 0 {
		return nil
	}
	if c.budget.used.Add(int64(n)) > c.budget.limit {
		c.budget.used.Add(-int64(n))
		return errGRPCBudget
	}
	c.taken += int64(n)
	return nil
}

// release gives all of the charge back.
func (c *grpcCharge) release() {
	if c.taken != 0 {
		c.budget.used.Add(-c.taken)
		c.taken = 0
	}
}
