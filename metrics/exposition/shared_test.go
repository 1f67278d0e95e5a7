package exposition

import "errors"

// Pieces keeps the writes, and fails after a number of them; 0: never.
type Pieces struct {
	List  []string
	after int
}

func (p *Pieces) Write(b []byte) (int, error) {
	p.List = append(p.List, string(b))
	if len(p.List) == p.after {
		return 0, errGone
	}
	return len(b), nil
}

var errGone = errors.New("the client has gone")
