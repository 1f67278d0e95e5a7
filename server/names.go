package server

// Names detects repeated names. It compares a few names with each other and puts many into a map.
type Names struct {
	seen map[string]struct{} // bound: names, which callers charge
}

const fewNames = 16

// Add reports whether name is new. The n names before it, which name(i) returns, have been added.
func (f *Names) Add(name string, n int, earlier func(i int) string) bool {
	if n < fewNames {
		for i := range n {
			if earlier(i) == name {
				return false
			}
		}
		return true
	}
	if f.seen == nil {
		f.seen = make(map[string]struct{}, 2*n) // bound: names, which callers charge
		for i := range n {
			f.seen[earlier(i)] = struct{}{}
		}
	}
	if _, ok := f.seen[name]; ok {
		return false
	}
	f.seen[name] = struct{}{}
	return true
}
