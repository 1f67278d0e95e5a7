package env

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/conda/cache"
)

func prune(ctx context.Context, i *invocation) error {
	var which cache.Selection
	i.flags.BoolVar(&which.All, "all", false, "remove all environments that no process uses")
	i.flags.Func("unused", "remove environments unused for this `TIME`, such as 12h or 30d", func(text string) (err error) {
		which.Unused, err = parseAge(text)
		return err
	})
	i.flags.Func("max-bytes", "remove the least recently used environments until the rest takes at most `BYTES`; suffixes K, M, G and T are allowed", func(text string) (err error) {
		which.Bounded = true
		which.MaxBytes, err = parseBytes(text)
		return err
	})
	return i.withCache(func(c *cache.Cache) error {
		if !which.All && which.Unused == 0 && !which.Bounded && len(i.names) == 0 {
			return &command.UsageError{Text: "nothing selected: give --all, --unused, --max-bytes or names"}
		}
		before, err := c.List()
		if err != nil {
			return err
		}
		named, err := i.chosen(before)
		if err != nil {
			return err
		}
		for _, e := range named {
			which.Names = append(which.Names, e.Name)
		}
		removed, err := c.Prune(ctx, which)
		if printErr := i.printRemoved(removed); printErr != nil || err != nil {
			return errors.Join(err, printErr)
		}
		for _, e := range named {
			if e.Complete && !slices.ContainsFunc(removed, func(r cache.Entry) bool { return r.Name == e.Name }) {
				fmt.Fprintf(i.stderr, "nereid env prune: %s is in use and stays: unload its models first\n", e.Name)
				err = command.ErrTrouble
			}
		}
		return err
	})
}

func (i *invocation) printRemoved(removed []cache.Entry) error {
	if i.json {
		if removed == nil {
			removed = []cache.Entry{} // [] and not null
		}
		return i.printJSON(removed)
	}
	total := int64(0)
	for _, e := range removed {
		total += e.Bytes
		fmt.Fprintf(i.stdout, "removed %s, %s, of %s\n", e.Name, bytesText(e.Bytes), e.Source)
	}
	fmt.Fprintf(i.stdout, "%s removed, %s\n", plural(len(removed), "environment"), bytesText(total))
	return nil
}

// parseAge parses a Go duration, or a number of days.
func parseAge(text string) (time.Duration, error) {
	days, isDays := strings.CutSuffix(text, "d")
	age, err := time.ParseDuration(text)
	if isDays {
		var n int64
		n, err = strconv.ParseInt(days, 10, 64)
		const day = 24 * time.Hour
		if age = time.Duration(n) * day; err == nil && n > int64(math.MaxInt64/day) {
			err = strconv.ErrRange
		}
	}
	if err != nil || age <= 0 {
		return 0, errors.New("want a time above zero, such as 12h or 30d")
	}
	return age, nil
}

// parseBytes parses a number of bytes with its unit, a power of 1024.
func parseBytes(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGT")
	shift := 0
	if unit := text[len(digits):]; len(unit) == 1 {
		shift = 10 * (1 + strings.Index("KMGT", unit))
	} else if unit != "" {
		digits = ""
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, errors.New("want a number of bytes, such as 500M or 20G")
	}
	return n << shift, nil
}
