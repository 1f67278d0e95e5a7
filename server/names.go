package server

// Names tells whether a name comes for the first time. A few names are compared
// with those before them; many go into a map.
type Names struct{ seen map[string]struct{} }

const fewNames = 16

// Add reports whether name is none of the n that name(i) returns, all of which
// have been added.
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
		f.seen = make(map[string]struct{}, 2*n)
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
