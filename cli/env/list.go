package env

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/conda/cache"
)

func list(_ context.Context, i *invocation) error {
	return i.withCache(func(c *cache.Cache) error {
		if len(i.names) > 0 {
			return &command.UsageError{Text: fmt.Sprintf("unexpected argument %q", i.names[0])}
		}
		entries, err := c.List()
		if err != nil {
			return err
		}
		if i.json {
			if entries == nil {
				entries = []cache.Entry{} // [] and not null
			}
			return i.printJSON(entries)
		}
		table := tabwriter.NewWriter(i.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tSIZE\tFILES\tUSED\tSTATE\tSOURCE")
		total := int64(0)
		for _, e := range entries {
			total += e.Bytes
			if e.Complete {
				fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\n", e.Name, bytesText(e.Bytes), e.Files, e.Used.Local().Format(time.DateTime), state(e), e.Source)
			} else {
				fmt.Fprintf(table, "%s\t\t\t\t%s\t\n", e.Name, state(e))
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(i.stdout, "%s, %s\n", plural(len(entries), "environment"), bytesText(total))
		return nil
	})
}

func state(e cache.Entry) string {
	switch {
	case e.Complete && e.InUse:
		return "in use"
	case e.Complete:
		return "unused"
	case e.InUse:
		return "being unpacked"
	}
	return "leftover"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
