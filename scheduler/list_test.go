package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/scheduler"
)

// listed is a list member for tests.
type listed struct {
	scheduler.Neighbours[*listed]
	number int
}

// TestListBehavesLikeASlice applies random operations to a list and a slice and checks that they
// stay equal.
func TestListBehavesLikeASlice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l scheduler.List[*listed]
	var want []*listed
	for n := range 2000 {
		switch at := len(want); random.IntN(4) {
		case 0:
			m := &listed{number: n}
			l.PushBack(m)
			want = append(want, m)
		case 1:
			m := &listed{number: n}
			l.PushFront(m)
			want = slices.Insert(want, 0, m)
		default:
			if at == 0 {
				continue
			}
			i := random.IntN(at)
			m := want[i]
			l.Remove(m)
			want = slices.Delete(want, i, i+1)
			if m.Before != nil || m.After != nil {
				t.Fatalf("%d, which has left, is between %v and %v", m.number, m.Before, m.After)
			}
		}
		var forth, back []*listed
		for m := l.First; m != nil; m = m.After {
			forth = append(forth, m)
		}
		for m := l.Last; m != nil; m = m.Before {
			back = append(back, m)
		}
		slices.Reverse(back)
		if !slices.Equal(forth, want) || !slices.Equal(back, want) {
			t.Fatalf("step %d: got %s and backwards %s, want %s", n, numbers(forth), numbers(back), numbers(want))
		}
	}
}

func numbers(of []*listed) (text string) {
	for _, m := range of {
		text += fmt.Sprint(" ", m.number)
	}
	return text
}
