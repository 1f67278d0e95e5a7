package python

// stubDescriptors is more than what a stub takes of the descriptors of this
// process: eight while it runs, and about as many while it starts.
const stubDescriptors = 20

// Descriptors returns how many descriptors are to be kept for stubs that are to be
// started: those of instances that have lost theirs, and two more.
func (b *Backend) Descriptors() int {
	b.live.Lock()
	live := len(b.live.processes)
	b.live.Unlock()
	return stubDescriptors * (2 + max(0, int(b.instances.Load())-live))
}
