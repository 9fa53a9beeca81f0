package seconds

import (
	"encoding/json"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// A duration is a decimal number of seconds, exact to a microsecond, and is read as what it was.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 95 * time.Second: "95", 231 * time.Millisecond: "0.231", 1499 * time.Nanosecond: "0.000001",
		-time.Second / 2: "-0.5", 100 * time.Hour: "360000",
	} {
		text, err := json.Marshal(Seconds(d))
		assert.Check(t, err == nil && string(text) == want, "%v is %s, want %s: %v", d, text, want, err)
		var got Seconds
		err = json.Unmarshal(text, &got)
		assert.Check(t, err == nil && time.Duration(got) == d.Round(time.Microsecond), "%s is %v: %v", text, got, err)
	}
	assert.Check(t, json.Unmarshal([]byte(`"1"`), new(Seconds)) != nil)
}
