// Package bounds has tables of the numbers in a config, each with its name, its default and its
// bounds. Defaults, validation and flags are derived from these tables.
package bounds

import (
	"fmt"
	"reflect"
	"time"
)

// LongestTime is a year, so that the sum of several times does not overflow.
const LongestTime = 366 * 24 * time.Hour

// Field is a number or a time in a config. 0 is always valid and stands for the default.
type Field struct {
	Name                 string
	At                   any // *int, *int64 or *time.Duration
	Default, Least, Most int64
}

// Of returns the row of the field at an address.
func Of[T int | int64 | time.Duration](name string, at *T, preset, least, most T) Field {
	return Field{name, at, int64(preset), int64(least), int64(most)}
}

// Table lists the numbers of one config.
type Table []Field

// Under puts the name of the config that has the table before the names of its fields.
func (t Table) Under(config string) Table {
	for i := range t {
		t[i].Name = config + "." + t[i].Name
	}
	return t
}

// SetDefaults sets the fields that are 0.
func (t Table) SetDefaults() {
	for _, f := range t {
		if v := reflect.ValueOf(f.At).Elem(); v.IsZero() {
			v.SetInt(f.Default)
		}
	}
}

// Validate returns an error that names the first field out of its bounds.
func (t Table) Validate() error {
	for _, f := range t {
		v := reflect.ValueOf(f.At).Elem()
		if v.IsZero() || v.Int() >= f.Least && v.Int() <= f.Most {
			continue
		}
		shown := func(n int64) reflect.Value { return reflect.ValueOf(n).Convert(v.Type()) }
		if f.Least > 0 {
			return fmt.Errorf("%s is %v, want %v to %v, or 0 for the default", f.Name, v, shown(f.Least), shown(f.Most))
		}
		return fmt.Errorf("%s is %v, want %v to %v", f.Name, v, shown(f.Least), shown(f.Most))
	}
	return nil
}
