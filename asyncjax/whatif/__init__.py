"""What-if: which way of training would cope best with the workers of a log?

`answer` reads a log, describes its workers, looks whether it is alike throughout, compares ways of
training on their durations without any training, trains small stand-in problems, and says what came
out; `python -m asyncjax.whatif` does the same and writes a page. `describe`, `compare`,
`toy_training` and `advise` are its steps.
Words and the page need the extra `whatif`.

| name | what it is |
|---|---|
| `answer`, `Answer` | the whole, and what it found |
| `describe`, `Description` | the workers of a log |
| `compare`, `Comparison` | ways of training on their durations |
| `toy_training`, `ToyResults` | the same on stand-in problems |
| `advise`, `Advice`, `Hint` | what small problems, measured once, say of such workers |
"""

from asyncjax.whatif.advising import Advice as Advice, Hint as Hint, advise as advise
from asyncjax.whatif.answering import Answer as Answer, answer as answer
from asyncjax.whatif.comparing import Comparison as Comparison, compare as compare
from asyncjax.whatif.describing import Description as Description, describe as describe
from asyncjax.whatif.toys import ToyResults as ToyResults, toy_training as toy_training
