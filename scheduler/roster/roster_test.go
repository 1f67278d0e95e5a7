package roster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/roster"
)

// named is an instance that only has a name.
type named string

func (n named) Name() string              { return string(n) }
func (named) Ready(context.Context) error { return nil }
func (named) Execute(*backend.Batch)      {}

func (named) Capabilities() backend.Capabilities { return backend.Capabilities{} }

// entry is the scheduler's record of an instance.
type entry struct {
	roster.Member
	slots int
}

// TestRosterFollowsEvents runs scripts of instance events. members lists the resulting members in
// order, each with its state: "+" available, "-" lost, "!" hopeless, and "~" if it is retiring.
func TestRosterFollowsEvents(t *testing.T) {
	for name, test := range map[string]struct {
		script     string
		members    string
		hopeless   string // the instance that HopelessLocked returns
		expects    bool
		available  int
		remembered int
		drained    string
	}{
		"empty":                             {expects: true},
		"available":                         {script: "up a", members: "a+", available: 1},
		"two, in the order of their coming": {script: "up b; up a", members: "b+ a+", available: 2},
		"met":                               {script: "meet a", members: "a-", expects: true},
		"lost":                              {script: "up a; lose a", members: "a-", expects: true},
		"lost before it was available":      {script: "lose a", members: "a-", expects: true},
		"hopeless":                          {script: "up a; lose a; doom a", members: "a!", hopeless: "a"},
		"hopeless before it was available":  {script: "doom a", members: "a!", hopeless: "a"},
		"hopeless, and met again":           {script: "doom a; meet a", members: "a!", hopeless: "a"},
		"hopeless, and available again":     {script: "doom a; up a", members: "a+", available: 1},
		"hopeless beside an available one":  {script: "doom a; up b", members: "a! b+", available: 1},
		"hopeless beside one that restarts": {script: "doom a; lose b", members: "a! b-", expects: true},
		"several hopeless":                  {script: "up b; up a; doom a; doom b", members: "b! a!", hopeless: "b"},
		"back to its entry":                 {script: "up a; up b; lose a; up a", members: "a+ b+", available: 2},

		"retiring":                              {script: "up a; retire a", members: "a+~", available: 1},
		"retiring beside a hopeless one":        {script: "up a; doom b; retire a", members: "a+~ b!", available: 1, hopeless: "b"},
		"retiring beside one that restarts":     {script: "up a; lose b; retire a", members: "a+~ b-", available: 1, expects: true},
		"retiring and lost":                     {script: "up a; retire a; lose a", members: "a-~"},
		"retiring and back":                     {script: "up a; retire a; lose a; up a", members: "a+~", available: 1},
		"drained":                               {script: "up a; retire a; drain a", expects: true, remembered: 1, drained: "a"},
		"drained twice":                         {script: "up a; retire a; drain a; drain a", expects: true, remembered: 1, drained: "a"},
		"drained without retiring":              {script: "up a; drain a", members: "a+", available: 1},
		"retired, and back":                     {script: "up a; retire a; drain a; lose a; up a", expects: true, remembered: 1, drained: "a"},
		"retired, and hopeless twice":           {script: "up a; retire a; drain a; doom a; doom a", expects: true, remembered: 1, drained: "a"},
		"retired, and ended":                    {script: "up a; retire a; drain a; lose a; doom a; forget a", expects: true, drained: "a"},
		"hopeless, drained, and hopeless again": {script: "up a; retire a; doom a; drain a; doom a", expects: true, remembered: 1, drained: "a"},
		"ended before it was drained":           {script: "up a; retire a; doom a; drain a; forget a", expects: true, drained: "a"},
		"hopeless, retired, and back":           {script: "doom a; retire a; drain a; up a", expects: true, remembered: 1, drained: "a"},
		"hopeless while retiring, and back":     {script: "up a; retire a; doom a; up a; drain a", expects: true, remembered: 1, drained: "a"},
		"retired before it was known":           {script: "retire a; up a", expects: true, remembered: 1, drained: "a"},
		"retired before it was known, and gone": {script: "retire a; doom a; forget a", expects: true, drained: "a"},
		"another serves":                        {script: "up a; up b; retire a; drain a", members: "b+", available: 1, remembered: 1, drained: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			r := roster.New(func() *entry { return &entry{slots: 3} })
			var drained []string
			all := map[string]*entry{}
			last := uint64(0)
			for step := range strings.SplitSeq(test.script, "; ") {
				verb, of, _ := strings.Cut(step, " ")
				in := named(of)
				var p *entry
				var known bool
				switch verb {
				case "meet":
					p, known = r.MeetLocked(in)
				case "up":
					if p, known = r.MeetLocked(in); known {
						r.AvailableLocked(p)
					}
				case "lose", "doom":
					p, known = r.LostLocked(in, verb == "doom")
				case "retire":
					say := func() { drained = append(drained, of) }
					if p, known = r.RetireLocked(in, say); !known {
						say()
					}
				case "forget":
					r.ForgetLocked(in)
				case "drain":
					if say := r.DrainLocked(all[of]); say != nil {
						say()
					}
				}
				if known {
					if p.Instance() != in || p.slots != 3 || all[of] != nil && all[of] != p {
						t.Fatalf("%s: got the member %+v", step, p)
					}
					if r.ChangesLocked() == last && verb != "meet" {
						t.Errorf("%s is not counted as a change", step)
					}
					all[of] = p
				} else if p != nil {
					t.Errorf("%s: got a member that is not known", step)
				}
				last = r.ChangesLocked()
			}
			if got := strings.Join(standings(r.MembersLocked()), " "); got != test.members {
				t.Errorf("members: got %q, want %q", got, test.members)
			}
			hopeless := ""
			if in := r.HopelessLocked(); in != nil {
				hopeless = in.Name()
			}
			if hopeless != test.hopeless || r.ExpectsLocked() != test.expects || r.CountAvailableLocked() != test.available || r.RememberedLocked() != test.remembered {
				t.Errorf("got hopeless %q, expects %v, %d available, %d remembered; want %q, %v, %d, %d",
					hopeless, r.ExpectsLocked(), r.CountAvailableLocked(), r.RememberedLocked(), test.hopeless, test.expects, test.available, test.remembered)
			}
			if got := strings.Join(drained, " "); got != test.drained {
				t.Errorf("drained: got %q, want %q", got, test.drained)
			}
		})
	}
}

func standings(members []*entry) []string {
	var list []string
	for _, m := range members {
		text := m.Instance().Name()
		switch {
		case m.AvailableLocked():
			text += "+"
		case m.HopelessLocked():
			text += "!"
		default:
			text += "-"
		}
		if m.RetiringLocked() {
			text += "~"
		}
		if m.ServesLocked() != (m.AvailableLocked() && !m.RetiringLocked()) {
			text += "?"
		}
		list = append(list, text)
	}
	return list
}

// TestMembersStayAsTheyWere checks that a list of members does not change later, because it is read
// without the lock.
func TestMembersStayAsTheyWere(t *testing.T) {
	r := roster.New(func() *entry { return &entry{} })
	for _, name := range []named{"a", "b"} {
		p, _ := r.MeetLocked(name)
		r.AvailableLocked(p)
	}
	before := r.MembersLocked()
	p, _ := r.RetireLocked(named("a"), func() {})
	r.DrainLocked(p)
	c, _ := r.MeetLocked(named("c"))
	if got := fmt.Sprintln(before[0].Instance().Name(), before[1].Instance().Name(), len(before)); got != "a b 2\n" {
		t.Errorf("the list of before has %s", got)
	}
	if got := strings.Join(standings(r.MembersLocked()), " "); got != "b+ c-" {
		t.Errorf("members: got %q, want b+ c-", got)
	}
	if !(before[0].Order() < before[1].Order() && before[1].Order() < c.Order()) {
		t.Errorf("orders: got %d, %d and %d", before[0].Order(), before[1].Order(), c.Order())
	}
}

// TestRequestsAllocateNothing checks that the methods called for each request do not allocate.
func TestRequestsAllocateNothing(t *testing.T) {
	r := roster.New(func() *entry { return &entry{} })
	p, _ := r.MeetLocked(named("a"))
	r.AvailableLocked(p)
	n := testing.AllocsPerRun(100, func() {
		for _, m := range r.MembersLocked() {
			if !m.ServesLocked() || r.HopelessLocked() != nil || r.CountAvailableLocked() != 1 {
				t.Error("the only member does not serve")
			}
		}
	})
	if n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
