"""Tutorial, step 3: each process has its own part of the data."""

import keras
from digits import build_model, load

import horovod.keras as hvd

hvd.init()

(x_train, y_train), test = load()

share = len(x_train) // hvd.size()
mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
x_train, y_train = x_train[mine], y_train[mine]

model = build_model()
optimizer = keras.optimizers.Adam(0.002 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(x_train, y_train, batch_size=32, epochs=15, validation_data=test, callbacks=callbacks, verbose=2)

model.save("digits.keras")
print(f"Test accuracy {model.evaluate(*test, verbose=0)[1]:.1%}")
