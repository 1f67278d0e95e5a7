package server

import "github.com/nereid-serving/nereid/infer"

// Single collects the responses to a request that should have one. The zero value is empty.
type Single struct {
	First *infer.Response // nil until there is one; the caller releases it
	Err   *infer.Error    // the first error of any response
	Count int             // without empty responses
	Empty int             // the empty responses
}

// Take is an infer.Sender.
func (s *Single) Take(r *infer.Response) {
	if s.Err == nil {
		s.Err = r.Err
	}
	if r.Empty {
		s.Empty++
	} else if s.Count++; s.Count == 1 {
		s.First = r
		return
	}
	r.Release()
}
