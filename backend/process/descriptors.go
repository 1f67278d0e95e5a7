package process

// stubDescriptors is more than what a stub takes of the descriptors of this
// process: eight while it runs, and about as many while it starts.
const stubDescriptors = 20

// Descriptors returns how many descriptors are to be kept for stubs that are to be
// started: those of instances that have lost theirs, and two more.
func (s *Supervisor) Descriptors() int {
	return stubDescriptors * (2 + max(0, int(s.instances.Load())-s.children.Count()))
}
