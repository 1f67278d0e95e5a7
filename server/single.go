package server

import "github.com/nereid-serving/nereid/infer"

// Single collects the responses to a request of which one is wanted. The zero value has
// none yet.
type Single struct {
	First *infer.Response // nil until there is one; the caller releases it
	Count int             // without those that carry nothing
}

// Take is an infer.Sender.
func (s *Single) Take(r *infer.Response) {
	if !r.Empty {
		if s.Count++; s.Count == 1 {
			s.First = r
			return
		}
	}
	r.Release()
}
