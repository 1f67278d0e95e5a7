package process

import "fmt"

// State is where an instance is in its life.
type State uint8

// The states of an instance; doc.go draws the moves between them.
const (
	Starting State = 0
	Ready    State = 1
	Busy     State = 2
	Lost     State = 3
	Stopped  State = 4
)

var stateNames = [...]string{"starting", "ready", "busy", "lost", "stopped"}

func (s State) String() string { return stateNames[s] }

// moves is an instance's whole life. Lost means gone without having been told to go.
var moves = [...][]State{
	Starting: {Ready, Lost, Stopped},
	Ready:    {Busy, Lost, Stopped},
	Busy:     {Ready, Lost, Stopped},
	Lost:     {Starting, Stopped},
	Stopped:  {},
}

// moveLocked changes the state; any step that moves does not list is our bug.
func (in *Instance) moveLocked(to State) {
	for _, s := range moves[in.state] {
		if s == to {
			in.state = to
			return
		}
	}
	panic(fmt.Sprintf("backend/process: instance %s moves from %s to %s", in.name, in.state, to))
}
