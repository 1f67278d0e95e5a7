package conformance

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/kserve"
)

// aloneTwice sends each request of a batch by itself, the first request twice. It also sends a
// request for a single output.
func (c *check) aloneTwice(s *session) {
	var failures int
	for _, n := range []int{0, 0, 1, 2, 3} {
		outcomes := c.settle(s, hand(c.present(), s.instances[0], c.request(n, anySize)), "one request")
		if c.hung {
			return
		}
		if failure := outcomes[0].failure(); failure != nil {
			failures++
			if failures == 5 {
				c.note("each request was answered with an error, so outputs were hardly looked at: " + failure.Message)
			}
		}
	}
	if len(c.config.Output) > 0 {
		wanting := c.request(0, anySize)
		wanting.request.Outputs = []string{c.config.Output[0].Name}
		c.settle(s, hand(c.present(), s.instances[0], wanting), "a request that wants one output")
	}
	if !c.hung {
		_ = s.instances[0].Ready(c.ctx) // whatever it says, it has to say something
	}
}

// together compares the outcomes of a batch with those of the same requests sent alone.
func (c *check) together(s *session) {
	requests := c.batch(0)
	if len(requests) == 1 {
		c.untested[ruleOwn] = "max_batch_size is 0: servers call Execute with one request"
		return
	}
	outcomes := func(calls ...*call) (all []outcome) {
		for _, each := range calls {
			each.wait(s.limit)
			each.mu.Lock()
			all = append(all, slices.Clone(each.outcomes)...)
			each.mu.Unlock()
		}
		return all
	}
	var singles [2][]*call
	for round := range singles {
		for n := range requests {
			each := hand(c.present(), s.instances[0], c.request(n, anySize))
			each.wait(s.limit)
			singles[round] = append(singles[round], each)
		}
	}
	one, two := outcomes(singles[0]...), outcomes(singles[1]...)
	joined := hand(c.present(), s.instances[0], requests...)
	batch := outcomes(joined)
	stable := true
	for n := range one {
		stable = stable && one[n].same(&two[n])
	}
	if stable {
		c.try(ruleOwn)
		for n := range batch {
			if !batch[n].same(&one[n]) {
				c.violated(ruleOwn, "a batch", requests[n].request.ID+" got another response than alone")
			}
		}
	} else {
		c.untested[ruleOwn] = "equal requests get different responses"
	}
	for _, each := range slices.Concat(singles[0], singles[1], []*call{joined}) {
		c.settle(s, each, "a batch")
	}
}

// empty sends inputs without elements, if the config allows them.
func (c *check) empty(s *session) {
	if !slices.ContainsFunc(c.config.Input, func(i *kserve.ModelInput) bool { return slices.Contains(i.Dims, -1) }) {
		c.untested[ruleEmpty] = "the config has no dimension of any size"
		return
	}
	c.try(ruleEmpty)
	c.settle(s, hand(c.present(), s.instances[0], c.request(0, 0)), "inputs without elements")
	if c.hung {
		c.violated(ruleEmpty, "inputs without elements", "the request was not answered")
	}
}

// missing sends a request that lacks an input; a server would reject it unless the input is
// optional. It shows how a backend handles its own errors.
func (c *check) missing(s *session) {
	lacking := c.request(0, anySize)
	if len(lacking.request.Inputs) == 0 {
		return
	}
	lacking.request.Inputs, lacking.memories = lacking.request.Inputs[1:], lacking.memories[1:]
	lacking.sum = checksum(lacking.request.Inputs)
	whole := c.request(1, anySize)
	requests := []*asked{lacking}
	if c.config.MaxBatchSize > 1 {
		requests = append(requests, whole)
	}
	c.settle(s, hand(c.present(), s.instances[0], requests...), "a request without its first input")
	if !c.hung {
		c.settle(s, hand(c.present(), s.instances[0], c.request(2, anySize)), "a request after one without its first input")
	}
}

// gone sends requests whose clients have disconnected, and others whose clients disconnect while
// they wait.
func (c *check) gone(s *session) {
	c.try(ruleCancelled)
	left, leave := context.WithCancel(c.ctx)
	leave()
	c.settle(s, hand([]context.Context{left}, s.instances[0], c.request(0, anySize)), "a client that has gone")
	if !c.hung {
		going, leave := context.WithCancel(c.ctx)
		each := hand([]context.Context{c.ctx, going}, s.instances[0], c.batch(0)...)
		leave()
		c.settle(s, each, "a client that goes")
	}
	if c.hung {
		c.violated(ruleCancelled, "a client that goes", "its request was not answered and released")
	}
}

// many sends a call as soon as Execute of the previous one has returned, even if its requests have
// no responses yet.
func (c *check) many(s *session) {
	const count = 30
	var calls []*call
	for n := range count {
		each := hand(c.present(), s.instances[0], c.batch(n)...)
		calls = append(calls, each)
		if !each.returned(s) {
			break
		}
	}
	for _, each := range calls {
		c.settle(s, each, "many calls")
		if c.hung {
			return
		}
	}
}

// present returns the context of clients that stay connected.
func (c *check) present() []context.Context { return []context.Context{c.ctx} }
