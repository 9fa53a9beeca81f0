package profile

import (
	"reflect"
	"testing"

	"gotest.tools/v3/assert"
)

// Each text of a resource counts.
func TestTextBytes(t *testing.T) {
	var r Resource
	want := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			switch field := v.Field(i); field.Kind() {
			case reflect.String:
				want++
				field.SetString("x")
			case reflect.Struct:
				if field.Type().PkgPath() == v.Type().PkgPath() {
					fill(field)
				}
			}
		}
	}
	fill(reflect.ValueOf(&r).Elem())
	got := r.TextBytes()
	assert.Check(t, got == want && want >= 12, "%d texts count, of %d", got, want)
}
