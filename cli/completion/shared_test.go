package completion

import "github.com/nereid-serving/nereid/cli/command"

var Program = command.Description{
	Name: "prog", Call: "prog [options]",
	Flags: []command.Flag{
		{Name: "mode", Value: "<string>", Help: `Which: "fast" or "slow".` + "\nSecond line."},
		{Name: "mood", Value: "<boolean>", Help: "On or off."},
		{Name: "store", Value: "<string>", Help: "A directory of things."},
		{Name: "count", Value: "<integer>", Help: "How many."},
		{Name: "help", Help: "Show this."},
	},
	Commands: []command.Description{
		{Name: "run", Call: "prog run FILE", Summary: "Runs a file.", Flags: []command.Flag{{Name: "fast", Help: "Be fast."}, {Name: "out", Value: "FILE"}}},
		{Name: "tree", Call: "prog tree COMMAND", Summary: "Trees.", Commands: []command.Description{
			{Name: "list", Call: "prog tree list", Summary: "Lists."}, {Name: "run", Call: "prog tree run NAME", Summary: "Runs."},
		}},
	},
}
