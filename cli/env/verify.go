package env

import (
	"context"
	"fmt"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/conda/cache"
)

// mostShown is how many lines verify prints about one damaged environment.
const mostShown = 20

// verified is the result of verify for one environment.
type verified struct {
	cache.Entry
	Damage []string `json:"damage"`
}

func verify(ctx context.Context, i *invocation) error {
	deep := i.flags.Bool("deep", false, "compare the contents as well as names, sizes and modes")
	return i.withCache(func(c *cache.Cache) error {
		entries, err := c.List()
		if err != nil {
			return err
		}
		if len(i.names) > 0 {
			if entries, err = i.chosen(entries); err != nil {
				return err
			}
		}
		all, damaged := []verified{}, false
		for _, e := range entries {
			v := verified{Entry: e, Damage: []string{}}
			switch {
			case e.Complete:
				found, err := c.Verify(ctx, e, *deep)
				if err != nil {
					return fmt.Errorf("%s: %w", e.Name, err)
				}
				v.Damage = append(v.Damage, found...)
			case !e.InUse:
				v.Damage = []string{"it is incomplete: the process that unpacked it was killed"}
			}
			damaged = damaged || len(v.Damage) > 0
			all = append(all, v)
			if !i.json {
				i.printVerified(v)
			}
		}
		if i.json {
			if err := i.printJSON(all); err != nil {
				return err
			}
		}
		if damaged {
			return command.ErrTrouble
		}
		return nil
	})
}

func (i *invocation) printVerified(v verified) {
	switch {
	case len(v.Damage) > 0:
		fmt.Fprintf(i.stdout, "%s damaged; remove it with nereid env prune %s, and the next start unpacks it again\n", v.Name, v.Name)
	case !v.Complete:
		fmt.Fprintf(i.stdout, "%s being unpacked\n", v.Name)
	default:
		fmt.Fprintf(i.stdout, "%s ok\n", v.Name)
	}
	for n, line := range v.Damage {
		if n == mostShown {
			fmt.Fprintf(i.stdout, "\tand %d more\n", len(v.Damage)-n)
			return
		}
		fmt.Fprintf(i.stdout, "\t%s\n", line)
	}
}
