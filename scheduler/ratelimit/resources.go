package ratelimit

import (
	"maps"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Resource is the capacity of a rate limiter resource on a device.
type Resource struct {
	Name   string
	Count  int64
	Device int32 // AnyDevice: on each
}

// AnyDevice stands for all devices.
const AnyDevice int32 = -1

// resource identifies a resource that instances share: on a device, or globally.
type resource struct {
	name   string
	device int32 // AnyDevice: global
}

// need is the amount of a resource that an instance holds while it executes.
type need struct {
	resource
	count int64
}

// needsOf returns the needs of an instance of a group.
func needsOf(group *kserve.ModelInstanceGroup, device int32) []need {
	most := make(map[resource]int64)
	for _, r := range group.GetRateLimiter().GetResources() {
		key := resource{r.GetName(), device}
		if r.GetGlobal() {
			key.device = AnyDevice
		}
		most[key] = max(most[key], int64(r.GetCount())) // bound: the config
	}
	needs := make([]need, 0, len(most)) // bound: the config
	for key, count := range most {
		needs = append(needs, need{key, count})
	}
	return needs
}

// Share is the reservation of one version of a model.
type Share struct {
	limiter *Limiter
	most    map[resource]int64 // of one instance
}

// Reserve adds the needs of instances until Release. It fails, with Triton's text, if a need could
// never be met. A nil Limiter reserves nothing.
func (l *Limiter) Reserve(groups []*kserve.ModelInstanceGroup) (*Share, error) {
	if l == nil {
		return nil, nil
	}
	s := &Share{limiter: l, most: make(map[resource]int64)}
	for _, group := range groups {
		if group.GetPassive() {
			continue
		}
		devices := []int32{0}
		if group.GetKind() == kserve.ModelInstanceGroup_KIND_GPU {
			devices = group.GetGpus()
		}
		for _, device := range devices {
			for _, n := range needsOf(group, device) {
				s.most[n.resource] = max(s.most[n.resource], n.count) // bound: the resources in configs
			}
		}
	}
	l.mu.Lock()
	err := l.checkLocked(s)
	if err == nil {
		l.shares[s] = struct{}{} // bound: the versions of models
		l.capacitiesLocked()
	}
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l.allocate() // there may be more than before
	return s, nil
}

// Release ends a reservation, which may be nil.
func (s *Share) Release() {
	if s == nil {
		return
	}
	l := s.limiter
	l.mu.Lock()
	delete(l.shares, s)
	l.capacitiesLocked()
	l.mu.Unlock()
}

// checkLocked returns why a share cannot be granted.
func (l *Limiter) checkLocked(s *Share) error {
	global, local := make(map[string]bool), make(map[string]bool)
	see := func(s *Share) {
		for r := range s.most {
			if r.device == AnyDevice {
				global[r.name] = true // bound: the resources in configs
			} else {
				local[r.name] = true // bound: the resources in configs
			}
		}
	}
	see(s)
	for other := range l.shares {
		see(other)
	}
	for r := range s.most {
		if global[r.name] && local[r.name] {
			return infer.Errorf(infer.InvalidArg, "Resource \"%s\" is present as both global and device-specific resource in the model configuration.", r.name)
		}
	}
	if len(l.explicit) == 0 {
		return nil
	}
	for r, count := range s.most {
		if limit := l.explicitly(r); limit < count {
			return infer.Errorf(infer.InvalidArg, "Resource count for \"%s\" is limited to %d which will prevent scheduling of one or more model instances, the minimum required count is %d",
				r.name, limit, count)
		}
	}
	return nil
}

// explicitly returns the explicit capacity of a resource: the larger of the amounts for its device
// and for all devices. For a global resource the amounts of all devices count.
func (l *Limiter) explicitly(r resource) int64 {
	least := make(map[resource]int64) // of resources that are given twice
	for _, e := range l.explicit {
		given := resource{e.Name, e.Device}
		if count, twice := least[given]; !twice || e.Count < count {
			least[given] = e.Count // bound: the command line
		}
	}
	most := int64(0)
	for given, count := range least {
		if given.name == r.name && (r.device == AnyDevice || given.device == AnyDevice || given.device == r.device) {
			most = max(most, count)
		}
	}
	return most
}

// capacitiesLocked recomputes the capacity of every needed resource.
func (l *Limiter) capacitiesLocked() {
	clear(l.capacity)
	for s := range l.shares {
		for r, count := range s.most {
			l.capacity[r] = max(l.capacity[r], count) // bound: the resources in configs
		}
	}
	if len(l.explicit) > 0 {
		for r := range maps.Clone(l.capacity) { // bound: the resources in configs
			l.capacity[r] = l.explicitly(r) // bound: the resources in configs
		}
	}
}
