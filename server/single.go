package server

import "github.com/nereid-serving/nereid/infer"

// Single collects the responses to a request that should have one. The zero value is empty.
type Single struct {
	First *infer.Response // nil until there is one; the caller releases it
	Count int             // without empty responses
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
